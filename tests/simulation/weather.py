"""Which faults strike, each kind by dice of its own, so that a storm can be told again with some kinds left out."""

from collections import Counter
from collections.abc import Collection
from random import Random
from typing import Final

KINDS: Final = (
    "duplicate",  # a message is delivered twice
    "slow",  # a message comes late, and so out of order
    "drop",  # a message is not acknowledged, and so delivered again
    "dead",  # a message is corrupted on its way to one listener: a dead letter
    "relay",  # a relay dies between publishing and noting it
    "stream",  # a stream is lost with all that it holds
    "crash",  # a service dies before or after its commit
    "pause",  # a service stands still, longer than a lease lives
    "late",  # a result is said long after it was noted, and its node is drained meanwhile
    "redis",  # the leases are wiped, rolled back, or away
    "skew",  # clocks are up to two minutes off
    "call",  # a question or its answer is lost, late or doubled
    "garbage",  # an answer is well sent and is none: an error where the answer should be
    "broker",  # NATS is away, longer than a node may be silent
    "restore",  # an old backup of all services is restored
    "cut",  # a cluster is cut off and comes back
    "gone",  # a node never comes back
    "reboot",  # a node loses its power
    "agent",  # an agent is restarted
    "deaf",  # a node takes orders and its answers get lost
    "mute",  # a node forgets to say that runs started or ended
    "watch",  # what a cluster notices is kept back for a while, and then comes old, twice, and in no order
    "forgetful",  # a node says that it has no runs, or that it cannot tell
    "refusal",  # a node refuses every launch
    "blind",  # a node can make no claim and no seal
    "liar",  # a node says that a run ended which goes on
    "restart",  # a backend starts a run again by itself
    "elsewhere",  # a node gives a process other devices than were asked for
    "native",  # a process that nobody granted anything is on a node's devices
    "neighbour",  # a job of the scheduler whose node it is takes devices; it obeys that one's marks
    "stubborn",  # a node refuses marks
    "astray",  # a launch comes through a destination that has no such grant, such as the node's owner of before
    "move",  # people move nodes to another destination, and back, and change their minds
    "cancel",  # users cancel
    "drain",  # operators drain nodes
    "override",  # a person releases what waits for proof, rightly or wrongly
)

FAULTS: Final = {
    "a message is delivered twice": "duplicate",
    "a message comes late and out of order": "slow",
    "a message is dropped and delivered again": "drop",
    "a message is corrupted": "dead",
    "a relay dies between publishing and noting it": "relay",
    "a stream is lost": "stream",
    "a service dies": "crash",
    "a service dies just before its commit": "crash before the commit",
    "a service dies just after its commit": "crash after the commit",
    "a service stands still for longer than a lease lives, and wakes": "pause past the leases",
    "a result is said when its attempt may be over": "late",
    "Redis is wiped": "leases wiped",
    "Redis is rolled back": "leases rolled back",
    "Redis is away": "leases away",
    "a clock is off by more than a minute": "skew",
    "a question or its answer is lost, late or doubled": "call",
    "NATS is away for longer than a node may be silent": "broker",
    "a node never comes back": "gone",
    "an old backup is restored": "restore",
    "a cluster is cut off": "cluster cut off",
    "a node is cut off": "cut",
    "a node loses its power": "reboot",
    "an agent is restarted": "agent",
    "a backend takes a launch and its answer gets lost": "deaf to a launch",
    "a backend says that a run ended which goes on": "liar",
    "a backend says that it has nothing": "forgetful of runs",
    "a backend says that it has nothing after its restart": "forgetful after a restart",
    "a backend's notices stay away, and then come old and twice": "notices late and twice",
    "a backend answers with an error where the answer should be": "garbage",
    "a backend forgets to say that runs started or ended": "mute",
    "a backend starts a run again by itself": "restart",
    "a backend refuses launches": "refusal",
    "a node can make no claim and no seal": "blind",
    "a node gives a process other devices": "elsewhere",
    "a process of nobody is on a node's devices": "native",
    "a job of the node's own scheduler slips in": "neighbour",
    "a node refuses a mark": "stubborn",
    "the acknowledgement of a mark gets lost": "deaf to a mark",
    "a launch comes through another destination": "astray",
    "a person moves a node": "move",
    "a person asks for a move twice": "move asked twice",
    "a person wants a node back at once": "move back at once",
    "a person gives up a move": "move Cancelled",
    "a node is another destination's after a move": "move Completed",
    "a user cancels": "cancel",
    "an operator drains a node": "drain",
    "a person overrides": "override",
}
"""Every fault of this world in words, and what ``Weather.struck`` counts it as."""


class Weather:
    """The faults that may strike. ``calm``: none does any more. ``struck`` counts what really did, in words."""

    def __init__(self, seed: str, kinds: Collection[str] = KINDS) -> None:
        self.calm = False
        self.struck: Counter[str] = Counter()
        self.dice = Random(f"{seed}/world")
        self.kinds = tuple(kind for kind in KINDS if kind in kinds)
        self._dice = {kind: Random(f"{seed}/{kind}") for kind in self.kinds}

    def strikes(self, kind: str, chance: float) -> bool:
        """Say whether a fault of this kind strikes now."""
        dice = self._dice.get(kind)
        struck = dice is not None and dice.random() < chance and not self.calm
        if struck:
            self.struck[kind] += 1
        return struck

    def dice_of(self, kind: str) -> Random:
        """Return the dice that say how a fault of this kind goes."""
        return self._dice.get(kind, self.dice)

    def trip(self) -> float:
        """Return how many seconds something is on its way."""
        if self.strikes("slow", 0.04):
            return self._dice["slow"].choice((0.5, 2.0, 8.0, 30.0, 90.0))
        return 0.001 + 0.03 * self.dice.random()
