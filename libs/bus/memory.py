"""The memory twin of NATS, for simulations: it passes the same tests as the real one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import orjson

from libs.bus.ports import (
    BATCH,
    MAX_DELIVER,
    UNAVAILABLE,
    Delivery,
    Question,
    Receipt,
    StreamState,
    TakeBatch,
    TakeQuestion,
)
from libs.bus.subjects import message_id
from libs.clock import Clock
from libs.errors import RefusedError, UnavailableError
from libs.pg.outbox import Unsent
from schemas.catalog import STREAMS, Durable

DUPLICATE_WINDOW_SECONDS: Final = 120
POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of a stream."""

    sequence: int
    subject: str
    body: bytes
    headers: Mapping[str, str]
    time: datetime


@dataclass(slots=True)
class MemoryStream:
    """A stream: what it holds, and which message ids it remembers."""

    created: datetime
    messages: dict[int, Stored] = field(default_factory=dict)
    last_sequence: int = 0
    identities: dict[str, tuple[int, datetime]] = field(default_factory=dict)


@dataclass(slots=True)
class MemoryDurable:
    """How far a durable has come; ``pending`` and ``again`` map a sequence to its monotonic deadline."""

    spec: Durable
    next_sequence: int = 1
    attempts: dict[int, int] = field(default_factory=dict)
    pending: dict[int, float] = field(default_factory=dict)
    again: dict[int, float] = field(default_factory=dict)


class MemoryServer:
    """Streams, durables and calls of every bus that is made on it. Nothing survives it."""

    def __init__(self, clock: Clock, *, ack_wait_seconds: float = 30.0) -> None:
        self.clock = clock
        self.up = True
        self.streams: dict[str, MemoryStream] = {}
        self.durables: dict[str, MemoryDurable] = {}
        self.answerers: dict[str, list[TakeQuestion]] = {}
        self.buses: list[MemoryBus] = []
        self._ack_wait_seconds = ack_wait_seconds
        self._incarnations = 0

    def declare(self, durables: Sequence[Durable]) -> None:
        """Make the catalogue's streams and these durables where they are missing."""
        for stream in STREAMS:
            if stream.name not in self.streams:
                self._incarnations += 1
                moment = self.clock.now() + timedelta(microseconds=self._incarnations)
                self.streams[stream.name] = MemoryStream(moment)
        for durable in durables:
            self.durables.setdefault(durable.name, MemoryDurable(durable))

    def delete_stream(self, name: str) -> None:
        """Lose a stream and the durables on it."""
        del self.streams[name]
        for durable in [key for key, value in self.durables.items() if value.spec.stream == name]:
            del self.durables[durable]

    def set_up(self, *, up: bool) -> None:
        """Take the server away, or bring it back."""
        self.up = up
        if up:
            for bus in self.buses:
                bus.reconnected()

    def store(self, item: Unsent) -> Receipt | None:
        """Store a message, once a message id within the window. None: there is no such stream."""
        said = item.message
        return self.store_raw(said.stream, said.subject, said.body, said.headers, message_id(said.id, item.said))

    def store_raw(
        self, name: str, subject: str, body: bytes, headers: Mapping[str, str], identity: str
    ) -> Receipt | None:
        """Store bytes, once a message id within the window. None: there is no such stream."""
        stream, now = self.streams.get(name), self.clock.now()
        if stream is None:
            return None
        known = stream.identities.get(identity)
        if known and (now - known[1]).total_seconds() < DUPLICATE_WINDOW_SECONDS:
            return Receipt(known[0], duplicate=True)
        stream.last_sequence += 1
        stored = Stored(stream.last_sequence, subject, body, {**headers, "Nats-Msg-Id": identity}, now)
        stream.messages[stored.sequence] = stored
        stream.identities[identity] = (stored.sequence, now)
        return Receipt(stored.sequence)

    def fetch(self, name: str) -> "list[MemoryDelivery] | None":
        """Return what a durable has to deliver now; None: there is no such durable."""
        durable = self.durables.get(name)
        if durable is None or not self.up:
            return None
        self._expire(durable)
        ready = sorted(sequence for sequence, due in durable.again.items() if due <= self.clock.monotonic())
        fresh = self._fresh(durable, BATCH - len(ready))
        return [self._delivered(durable, sequence) for sequence in [*ready, *fresh][:BATCH]]

    def _fresh(self, durable: MemoryDurable, limit: int) -> list[int]:
        stream = self.streams[durable.spec.stream]
        found: list[int] = []
        while durable.next_sequence <= stream.last_sequence and len(found) < limit:
            stored = stream.messages.get(durable.next_sequence)
            if stored and any(stored.subject.startswith(each[:-1]) for each in durable.spec.filter_subjects):
                found.append(stored.sequence)
            durable.next_sequence += 1
        return found

    def _delivered(self, durable: MemoryDurable, sequence: int) -> "MemoryDelivery":
        durable.again.pop(sequence, None)
        durable.attempts[sequence] = durable.attempts.get(sequence, 0) + 1
        durable.pending[sequence] = self.clock.monotonic() + self._ack_wait_seconds
        stored = self.streams[durable.spec.stream].messages[sequence]
        return MemoryDelivery(self, durable, stored, durable.attempts[sequence])

    def _expire(self, durable: MemoryDurable) -> None:
        now = self.clock.monotonic()
        for sequence in [sequence for sequence, due in durable.pending.items() if due <= now]:
            del durable.pending[sequence]
            if durable.attempts[sequence] >= MAX_DELIVER:
                self._give_up(durable, sequence)
            else:
                durable.again[sequence] = now

    def _give_up(self, durable: MemoryDurable, sequence: int) -> None:
        stream = durable.spec.stream
        told = {"stream": stream, "stream_seq": sequence, "timestamp": str(self.clock.now()), "deliveries": MAX_DELIVER}
        for bus in self.buses:
            bus.hear_given_up(durable.spec.name, orjson.dumps(told))

    def again(self, durable: MemoryDurable, sequence: int, seconds: float) -> None:
        """Deliver a message again after so many seconds."""
        durable.pending.pop(sequence, None)
        durable.again[sequence] = self.clock.monotonic() + seconds

    def working(self, durable: MemoryDurable, sequence: int) -> None:
        """Start a message's time anew."""
        durable.pending[sequence] = self.clock.monotonic() + self._ack_wait_seconds


@dataclass(frozen=True, slots=True)
class MemoryDelivery:
    """One message of a durable in memory."""

    server: MemoryServer
    durable: MemoryDurable
    stored: Stored
    attempt: int

    @property
    def subject(self) -> str:
        """Where it was said."""
        return self.stored.subject

    @property
    def body(self) -> bytes:
        """What was said."""
        return self.stored.body

    @property
    def headers(self) -> Mapping[str, str]:
        """What was said beside it."""
        return self.stored.headers

    @property
    def origin(self) -> str:
        """Stream, sequence and time of the stored message."""
        return f"{self.durable.spec.stream}/{self.stored.sequence}/{self.stored.time.isoformat()}"

    async def ack(self) -> None:
        """It took effect. Lost while the server is away."""
        if self.server.up:
            self.durable.pending.pop(self.stored.sequence, None)

    async def again(self, seconds: float) -> None:
        """Deliver it again after so many seconds. Lost while the server is away."""
        if self.server.up:
            self.server.again(self.durable, self.stored.sequence, seconds)

    async def working(self) -> None:
        """Start its time anew."""
        self.server.working(self.durable, self.stored.sequence)


class MemoryBus:
    """One service's bus on a memory server."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._durables: list[tuple[Durable, TakeBatch]] = []
        self._answered: list[tuple[str, TakeQuestion]] = []
        self._given_up: dict[str, Callable[[bytes], Awaitable[None]]] = {}
        self._reconnected: list[Callable[[], None]] = []
        self._failures: asyncio.Queue[Exception] = asyncio.Queue()
        self._tasks: list[asyncio.Future[None]] = []
        self._draining = False

    @property
    def connected(self) -> bool:
        """Whether the server is up."""
        return self._server.up

    def consume(self, durable: Durable, take: TakeBatch, *, rest_seconds: float = 0.0) -> None:
        """Hand batches of a durable to ``take``, one after the other, without a rest."""
        del rest_seconds
        self._durables.append((durable, take))

    def given_up(self, durable: Durable, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Hand the advisories of messages that a durable gave up to ``take``."""
        self._given_up[durable.name] = take

    def answer(self, subject: str, queue: str | None, take: TakeQuestion) -> None:
        """Hand questions to ``take``; the first that answers a subject gets each."""
        del queue
        self._answered.append((subject, take))

    def on_reconnect(self, action: Callable[[], None]) -> None:
        """Do this each time the server is back after it was away."""
        self._reconnected.append(action)

    def reconnected(self) -> None:
        """Tell that the server is back."""
        for action in self._reconnected:
            action()

    def hear_given_up(self, durable: str, advisory: bytes) -> None:
        """Hear that a durable gave a message up."""
        if take := self._given_up.get(durable):
            self._tasks.append(asyncio.ensure_future(take(advisory)))

    async def connect(self) -> None:
        """Declare."""
        self._declare()

    async def start(self) -> None:
        """Begin to hand over."""
        self._server.buses.append(self)
        for subject, take in self._answered:
            self._server.answerers.setdefault(subject, []).append(take)
        for durable, take_batch in self._durables:
            self._tasks.append(asyncio.ensure_future(self._consume(durable, take_batch)))

    async def drain(self) -> None:
        """Take nothing new, and end when what was taken is settled."""
        self._draining = True
        for subject, take in self._answered:
            self._server.answerers[subject].remove(take)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Leave the server; what was not settled is delivered again after its time."""
        for task in self._tasks:
            task.cancel()
        with suppress(ValueError):
            self._server.buses.remove(self)

    async def died(self) -> None:
        """Wait until a consumer dies of a defect, and raise it."""
        raise await self._failures.get()

    async def publish(self, messages: Sequence[Unsent]) -> list[Receipt | None]:
        """Store messages in this order. Raises UnavailableError while the server is away."""
        if not self._server.up:
            raise UnavailableError("the memory server is away")
        receipts = [self._server.store(item) for item in messages]
        if None in receipts:
            self._declare()
        return receipts

    async def look(self, stream: str) -> StreamState | None:
        """Return the state of a stream; None: it is gone, and is declared again."""
        if not self._server.up:
            raise UnavailableError("the memory server is away")
        found = self._server.streams.get(stream)
        if found is None:
            self._declare()
            return None
        return StreamState(found.created, found.last_sequence)

    async def ask(self, subject: str, body: bytes, *, timeout: float, traceparent: str | None = None) -> bytes:
        """Return the answer. Raises UnavailableError without one in time, RefusedError when refused."""
        takers = self._server.answerers.get(subject, []) if self._server.up else []
        if not takers:
            raise UnavailableError(f"nobody answers {subject}")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        takers[0](_question(body, answer, traceparent))
        try:
            return await asyncio.wait_for(answer, timeout)
        except TimeoutError as error:
            raise UnavailableError(f"no answer on {subject} in time") from error

    def _declare(self) -> None:
        self._server.declare([durable for durable, _ in self._durables])

    async def _consume(self, durable: Durable, take: TakeBatch) -> None:
        while not self._draining:
            batch: Sequence[Delivery] | None = self._server.fetch(durable.name)
            if batch is None and self._server.up:
                self._declare()
            if not batch:
                await asyncio.sleep(POLL_SECONDS)
                continue
            try:
                await take(batch)
            except Exception as error:
                self._failures.put_nowait(error)
                raise


def _question(body: bytes, answer: asyncio.Future[bytes], traceparent: str | None) -> Question:
    async def reply(said: bytes) -> None:
        if not answer.done():
            answer.set_result(said)

    async def refuse(code: str, text: str) -> None:
        if not answer.done():
            answer.set_exception(UnavailableError(text) if code == UNAVAILABLE else RefusedError(code, text))

    return Question(body, reply, refuse, traceparent, lambda: not answer.done())
