"""What can happen to a stack while jobs go through it: a deck of every kind of strike, dealt by a seed."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from deploy.embedded.servers import SERVERS
from tests.support.links import Weather

STREAMS = ("WORKLOAD", "RUNTIME", "FLEET", "LEDGER")
SHORTEST_GAP, LONGEST_GAP = 0.3, 2.5
ALL = "all"


class Verb(StrEnum):
    """What is done."""

    KILL = "kill"
    STOP = "stop"
    RESTART = "restart"
    WEATHER = "weather"
    FLUSH = "flush"
    DELETE = "delete streams"
    FILL = "fill the disk"
    BURST = "burst"


@dataclass(frozen=True, slots=True)
class Strike:
    """One strike. ``gap``: seconds after the one before it began; ``seconds``: how long it lasts, 0 at once."""

    kind: str
    verb: Verb
    victim: str = ""
    seconds: float = 0.0
    gap: float = 0.0
    server: str = ""
    weather: Weather = Weather.CLEAR

    def __str__(self) -> str:
        whom = "" if self.victim in ("", self.kind.rpartition(" ")[2]) else f": {self.victim}"
        return f"{self.kind}{whom}{f' for {self.seconds:.1f} s' if self.seconds else ''}"

    @property
    def touches(self) -> frozenset[str]:
        """What no other strike may touch at the same time."""
        if self.verb is Verb.FILL:
            return frozenset(SERVERS)
        return frozenset({f"lines to {self.server}" if self.verb is Verb.WEATHER else self.server or self.victim})


@dataclass(frozen=True, slots=True)
class Scene:
    """Whom there is to strike."""

    services: Sequence[str]
    replicas: Sequence[str]  # of the service that has several
    agents: Sequence[str]
    has_disk: bool

    @property
    def clients(self) -> list[str]:
        """Everybody who talks to a server."""
        return [*self.services, *self.replicas, *self.agents]


def deal(seed: str, scene: Scene) -> list[Strike]:
    """Return every kind of strike once, in an order, at times and on victims that follow from the seed."""
    dice = random.Random(seed)
    strikes = [strike for make in (_on_servers, _on_clients, _on_lines, _on_data) for strike in make(dice, scene)]
    dice.shuffle(strikes)
    return [replace(strike, gap=_between(dice, SHORTEST_GAP, LONGEST_GAP)) for strike in strikes]


def _on_servers(dice: random.Random, scene: Scene) -> Iterator[Strike]:
    del scene
    for server in SERVERS:
        yield Strike(f"kill {server}", Verb.KILL, server, server=server)
        yield Strike(f"stop {server}", Verb.STOP, server, _between(dice, 2, 6), server=server)
    yield Strike("restart postgres", Verb.RESTART, "postgres", server="postgres")


def _on_clients(dice: random.Random, scene: Scene) -> Iterator[Strike]:
    """Every stop is longer than the lease (3 s) and the ack wait (2 s)."""
    for kind, names in (("service", scene.services), ("placement", scene.replicas), ("agent", scene.agents)):
        yield Strike(f"kill {kind}", Verb.KILL, dice.choice(names))
        yield Strike(f"stop {kind}", Verb.STOP, dice.choice(names), _between(dice, 4, 8))


def _on_lines(dice: random.Random, scene: Scene) -> Iterator[Strike]:
    for server in SERVERS:
        whose = scene.replicas if server == "redis" else scene.clients if server == "nats" else scene.services
        for weather in Weather:
            if weather is not Weather.CLEAR:
                seconds, victim = _between(dice, 2, 8), dice.choice([ALL, *whose])
                yield Strike(f"{weather} {server}", Verb.WEATHER, victim, seconds, server=server, weather=weather)


def _on_data(dice: random.Random, scene: Scene) -> Iterator[Strike]:
    yield Strike("flush redis", Verb.FLUSH, "redis", server="redis")
    yield Strike("delete stream", Verb.DELETE, dice.choice(STREAMS), server="nats")
    yield Strike("delete streams", Verb.DELETE, ALL, server="nats")
    yield Strike("burst", Verb.BURST)
    if scene.has_disk:
        yield Strike("fill disk", Verb.FILL, seconds=_between(dice, 4, 8))


def _between(dice: random.Random, low: float, high: float) -> float:
    return round(dice.uniform(low, high), 1)
