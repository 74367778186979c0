"""JetStream in memory: it delivers to each durable, late, twice, out of order, or never."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from schemas.base import Envelope
from schemas.catalog import durables
from tests.simulation.timeline import Timeline
from tests.simulation.weather import Weather

DEAD_CHANCE: Final = 0.02
DROP_CHANCE: Final = 0.01
FETCH_SECONDS: Final = 0.01  # what comes meanwhile comes along
ACK_WAIT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message on its way to one durable. ``asks``: its sayer misses the answer."""

    envelope: Envelope
    asks: bool


Take = Callable[[list[Delivery]], bool]


@dataclass(slots=True)
class Durable:
    """What one durable has to deliver, and when; ``host`` says when it may take."""

    stream: str
    take: Take
    ready_at: Callable[[], float]
    waiting: list[tuple[float, int, Delivery]] = field(default_factory=list)
    poll_at: float = float("inf")


class Broker:
    """All streams, as far as somebody listens."""

    def __init__(self, timeline: Timeline, weather: Weather) -> None:
        self._timeline, self._weather = timeline, weather
        self._durables: dict[str, Durable] = {}
        self._listeners: dict[str, list[Durable]] = {}
        self._numbers = count()
        self.dead = 0
        self.up = True
        self.up_since = 0.0
        self.away: list[tuple[float, float]] = []

    def go(self, seconds: float) -> None:
        """Be away for a while: nothing is stored, delivered, asked or answered."""
        until = self._timeline.now + seconds
        self.up, self.up_since = False, until
        self.away.append((self._timeline.now, until))

        def act() -> bool:
            if not self.up and self.up_since <= self._timeline.now:
                self.come()
            return True

        self._timeline.at(until, act)

    def come(self) -> None:
        """Be back, with all that was stored."""
        if not self.up:
            self.up, self.up_since = True, self._timeline.now
            self.away[-1] = (self.away[-1][0], self._timeline.now)
            for durable in self._durables.values():
                if durable.waiting:
                    self._poll(durable, self._timeline.now + FETCH_SECONDS)

    def away_seconds(self, since: float) -> float:
        """Return how many seconds it has been away since then."""
        now = self._timeline.now
        return sum(max(0.0, min(end, now) - max(begin, since)) for begin, end in self.away)

    def listen(self, name: str, take: Take, ready_at: Callable[[], float], *, only: str = "") -> None:
        """Hand the messages of a durable of the catalogue to ``take``; ``ready_at`` says from when it may be called."""
        spec = next(each for each in durables() if each.name == name)
        durable = Durable(spec.stream.lower(), take, ready_at)
        self._durables[name] = durable
        for pattern in (each for each in spec.filter_subjects if each.startswith(only)):
            self._listeners.setdefault(pattern.removesuffix(".>"), []).append(durable)

    def say(self, envelope: Envelope, *, asks: bool = False) -> None:
        """Store a message and deliver it to whoever listens."""
        self._store(Delivery(envelope, asks), self._weather.trip)

    def say_together(self, envelopes: Sequence[Envelope]) -> None:
        """Store messages that were published at once, and so come together where nothing goes wrong."""
        seconds = self._weather.trip()
        for envelope in envelopes:
            self._store(Delivery(envelope, asks=False), lambda: seconds)

    def _store(self, delivery: Delivery, trip: Callable[[], float]) -> None:
        if not self.up:
            return  # whoever has an outbox does not try
        for durable in self._listeners.get(delivery.envelope.type, ()):
            self._send(durable, delivery, trip())
            if self._weather.strikes("duplicate", 0.05):
                self._send(durable, delivery, self._weather.trip())

    def again(self, name: str, deliveries: list[Delivery]) -> None:
        """Deliver again after the ack wait what was not acknowledged."""
        for delivery in deliveries:
            self._push(self._durables[name], delivery, ACK_WAIT_SECONDS)

    def lose(self, stream: str) -> None:
        """Lose all that a stream holds."""
        for durable in self._durables.values():
            if durable.stream == stream:
                durable.waiting.clear()

    def holds(self, stream: str) -> bool:
        """Whether something of a stream is on its way."""
        return any(durable.waiting for durable in self._durables.values() if durable.stream == stream)

    def _send(self, durable: Durable, delivery: Delivery, seconds: float) -> None:
        if durable.stream != "fleet" and self._weather.strikes("dead", DEAD_CHANCE):
            self.dead += 1
        elif self._weather.strikes("drop", DROP_CHANCE):
            self._push(durable, delivery, seconds + ACK_WAIT_SECONDS)
        else:
            self._push(durable, delivery, seconds)

    def _push(self, durable: Durable, delivery: Delivery, seconds: float) -> None:
        ready = self._timeline.now + seconds
        heapq.heappush(durable.waiting, (ready, next(self._numbers), delivery))
        self._poll(durable, ready + FETCH_SECONDS)

    def _poll(self, durable: Durable, at: float) -> None:
        if at >= durable.poll_at:
            return
        durable.poll_at = at

        def poll() -> bool:
            if durable.poll_at != at:
                return False
            durable.poll_at = float("inf")
            return self._hand_over(durable)

        self._timeline.at(at, poll)

    def _hand_over(self, durable: Durable) -> bool:
        now = self._timeline.now
        ready = max(durable.ready_at(), self.up_since)
        if ready > now:
            self._poll(durable, ready)
            return False
        limit = self._weather.dice.choice((1, 1, 2, 5, 20, 200))
        batch: list[Delivery] = []
        while durable.waiting and durable.waiting[0][0] <= now and len(batch) < limit:
            batch.append(heapq.heappop(durable.waiting)[2])
        if durable.waiting:
            self._poll(durable, max(durable.waiting[0][0], now + 0.001))
        return bool(batch) and durable.take(batch)
