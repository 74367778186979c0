"""A service's process: it runs loops and turns, dies and stands still; what is committed stays."""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar
from uuid import UUID

from schemas.base import Envelope
from tests.simulation.broker import Delivery
from tests.simulation.ground import Ground
from tests.simulation.store import Store, Turn

PAUSES: Final = (1.0, 4.0, 15.0, 40.0)
"""Seconds that a process may stand still: some are longer than a lease lives."""
Work = Callable[[], bool | None]
S = TypeVar("S")
A = TypeVar("A")


class CrashedError(Exception):
    """The process died just now."""


class Host(Generic[S]):
    """One process of a service on its store; replicas share the store."""

    def __init__(self, store: Store[S], ground: Ground) -> None:
        self.store, self.ground = store, ground
        self.timeline, self.weather = ground.timeline, ground.weather
        self.away_until = 0.0  # dead or standing still
        self.dead_until = 0.0
        self.life = 1
        self._loops: list[Loop[S]] = []

    def forget(self) -> None:
        """Lose what only the process knew."""

    def loop(self, work: Work, every_seconds: float) -> "Loop[S]":
        """Do work every so often; returns what wakes it."""
        made = Loop(self, work, every_seconds)
        self._loops.append(made)
        made.start()
        return made

    def later(self, seconds: float, action: Work) -> None:
        """Do something in this life of the process; while it stands still, afterwards. False of it: it was no step."""
        life = self.life

        def act() -> bool:
            if life != self.life:
                return False
            if self.away_until > self.timeline.now:
                self.timeline.at(self.away_until, act)
                return False
            return self.survive(action)

        self.timeline.after(seconds, act)

    def in_this_life(self, action: Callable[[A], None]) -> Callable[[A], None]:
        """Return what takes an answer to a question that this life of the process asked."""
        life = self.life

        def take(answer: A) -> None:
            if life == self.life:
                self.later(0.0, lambda: action(answer))

        return take

    def survive(self, action: Work) -> bool:
        """Do something that the process may die of. Return whether it did anything."""
        try:
            return action() is not False
        except CrashedError:
            self.die()
            return True

    def turn(self, work: Callable[[Turn[S]], None]) -> bool:
        """Do work in one transaction; return whether it said or heard anything.

        Raises CrashedError: the process died before or after the commit.
        """
        turn = self.store.turn()
        work(turn)
        crashes = self.weather.strikes("crash", 0.004)
        if crashes and self.weather.dice_of("crash").random() < 0.5:
            self.weather.struck["crash before the commit"] += 1
            raise CrashedError
        self.store.commit(turn)
        if self.store.unsent:
            self.timeline.after(0.001 + 0.004 * self.weather.dice.random(), self.relay)
        if crashes:
            self.weather.struck["crash after the commit"] += 1
            raise CrashedError
        for action in turn.actions:
            action()
        return bool(turn.said or turn.heard or turn.again)

    def take(self, durable: str, handler: "Handler[S]", again: "Handler[S] | None", batch: list[Delivery]) -> None:
        """Take a batch in a turn, and acknowledge it: what was not is delivered again. Raises CrashedError."""
        try:
            self.turn(lambda turn: self._hear(turn, durable, handler, again, batch))
        except CrashedError:
            self.ground.broker.again(durable, batch)
            raise

    def relay(self) -> bool:
        """Publish what is committed and not yet said. One of all replicas does it."""
        unsent = self.store.unsent
        if unsent and self.away_until > self.timeline.now:
            self.timeline.at(self.away_until, self.relay)
            return False
        if unsent and not self.ground.broker.up:
            self.timeline.at(self.ground.broker.up_since + self.weather.dice.random(), self.relay)
            return False
        for identity in list(unsent):
            row = self.store.rows[identity]
            self.ground.broker.say(row.envelope, asks=row.asks)
            if self.weather.strikes("relay", 0.01):
                self.timeline.after(1.0, self.relay)  # published and not noted: it will be published again
                return True
            row.sent_at = self.timeline.now
            del unsent[identity]
        return bool(unsent)

    def lose_stream(self, stream: str) -> None:
        """Let the relay notice in a while that a stream has lost all it was given."""

        def notice() -> bool:
            self.store.lose(stream)
            return self.relay()

        self.timeline.after(5.0 * self.weather.dice_of("stream").random(), notice)

    def sweep(self, unanswered: Callable[[Turn[S]], Sequence[UUID]], every_seconds: float) -> None:
        """Say again, every so often, what this returns: nobody has answered it."""

        def work() -> bool:
            return self.turn(lambda turn: turn.say_again(unanswered(turn), asks=True))

        self.loop(work, every_seconds)

    def die(self) -> None:
        """Lose everything but what is committed, and come back in a while."""
        self.life += 1
        self.forget()
        seconds = self.weather.dice_of("crash").choice((0.1, 1.0, 5.0, 20.0))
        self.dead_until = self.timeline.now + seconds
        self.away_until = max(self.away_until, self.dead_until)
        for each in self._loops:
            each.start()

    def stay_dead(self, seconds: float) -> None:
        """Be dead for so long at least."""
        self.dead_until = max(self.dead_until, self.timeline.now + seconds)
        self.away_until = max(self.away_until, self.dead_until)

    def pause(self, seconds: float) -> None:
        """Stand still, and go on later as if nothing had been."""
        self.away_until = max(self.away_until, self.timeline.now + seconds)
        self.weather.struck["pause past the leases"] += seconds >= 15.0

    def soon(self, action: Work) -> None:
        """Go on in a moment, unless the process stands still between the two steps."""
        if self.weather.strikes("pause", 0.1):
            self.pause(self.weather.dice_of("pause").choice(PAUSES))
        self.later(0.001, action)

    def _hear(
        self,
        turn: Turn[S],
        durable: str,
        handler: "Handler[S]",
        again: "Handler[S] | None",
        batch: list[Delivery],
    ) -> None:
        fresh: dict[UUID, Envelope] = {}
        missed: list[Envelope] = []
        for delivery in batch:
            identity = delivery.envelope.id
            if (durable, identity) not in self.store.inbox:
                fresh.setdefault(identity, delivery.envelope)
            elif delivery.asks:
                missed.append(delivery.envelope)
        turn.heard = [(durable, identity) for identity in fresh]
        if fresh:
            handler(turn, list(fresh.values()))
        turn.again_for += [envelope.id for envelope in missed]
        if missed and again is not None:
            again(turn, missed)


Handler = Callable[[Turn[S], Sequence[Envelope]], None]


class Loop(Generic[S]):
    """Work that is done every so often, and soon after it was woken."""

    def __init__(self, host: Host[S], work: Work, every_seconds: float) -> None:
        self._host, self._work, self._every = host, work, every_seconds
        self._woken = False

    def wake(self) -> None:
        """Do the work soon."""
        if not self._woken:
            self._woken = True
            self._host.later(0.002, self._run)

    def start(self) -> None:
        """Begin with the process."""
        self._woken = False
        self._host.later(self._every * self._host.weather.dice.random(), self._beat)

    def _run(self) -> bool | None:
        self._woken = False
        return self._work()

    def _beat(self) -> bool | None:
        self._host.later(self._every * (0.8 + 0.4 * self._host.weather.dice.random()), self._beat)
        return self._work()


def listen(
    hosts: Sequence[Host[S]],
    durable: str,
    handlers: Sequence[Handler[S]],
    again: Handler[S] | None = None,
    *,
    only: str = "",
) -> None:
    """Let whichever replica is there take the batches of a durable, each by its own handler; ``only`` some types."""
    ground = hosts[0].ground

    def take(batch: list[Delivery]) -> bool:
        able = [n for n, host in enumerate(hosts) if host.away_until <= ground.timeline.now]
        chosen = able[0] if len(able) == 1 else ground.weather.dice.choice(able)
        host = hosts[chosen]
        host.survive(lambda: host.take(durable, handlers[chosen], again, batch))
        return True

    ground.broker.listen(durable, take, lambda: min(host.away_until for host in hosts), only=only)
