"""What a bus and a store are to the shell. JetStream with Postgres and the memory twin pass one test suite."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from libs.bus.turn import Turn
from libs.pg.outbox import Sent, Unsent
from libs.telemetry.telemetry import Telemetry
from schemas.catalog import Durable

MAX_DELIVER = 8  # with delays of 1, 2, 4, … s: about four minutes of trying
UNAVAILABLE = "Unavailable"  # a refusal that means: ask again later
BATCH = 500  # one turn takes so many messages or questions at most


class Delivery(Protocol):
    """One message of a durable, until it is settled."""

    @property
    def subject(self) -> str:
        """Where it was said."""

    @property
    def body(self) -> bytes:
        """What was said."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What was said beside it."""

    @property
    def attempt(self) -> int:
        """Which delivery this is, from 1."""

    @property
    def origin(self) -> str:
        """Names the stored message: stream, sequence and time."""

    async def ack(self) -> None:
        """It took effect; never deliver it again."""

    async def again(self, seconds: float) -> None:
        """Deliver it again after so many seconds."""

    async def working(self) -> None:
        """It is still being worked on; start its time anew."""


def _yes() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a call. ``reply`` says the answer to who asked; ``refuse`` says an error's code and text.

    ``awaited``: whether who asked still waits, as far as can be told.
    """

    body: bytes
    reply: Callable[[bytes], Awaitable[None]]
    refuse: Callable[[str, str], Awaitable[None]]
    traceparent: str | None = None
    awaited: Callable[[], bool] = _yes


@dataclass(frozen=True, slots=True)
class Receipt:
    """A stream has stored a message, or claims (``duplicate``) that it had done so before."""

    sequence: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class StreamState:
    """Which incarnation of a stream there is, and how far it has come."""

    created: datetime
    last_sequence: int


TakeBatch = Callable[[Sequence[Delivery]], Awaitable[None]]
TakeQuestion = Callable[[Question], None]


class Bus(Protocol):
    """Carries messages; declares streams and durables, and again after their loss."""

    @property
    def connected(self) -> bool:
        """Whether the server can be reached now."""

    def consume(self, durable: Durable, take: TakeBatch, *, rest_seconds: float = 0.0) -> None:
        """Hand batches of a durable to ``take``, one after the other. What it raises ends ``died``.

        ``rest_seconds``: after a batch that was not full, so that what comes meanwhile shares the next.
        """

    def given_up(self, durable: Durable, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Hand the server's advisories of messages that a durable gave up to ``take``."""

    def answer(self, subject: str, queue: str | None, take: TakeQuestion) -> None:
        """Hand questions to ``take``; of the members of a queue, one gets each."""

    def on_reconnect(self, action: Callable[[], None]) -> None:
        """Do this each time the server is back after it was away."""

    async def connect(self) -> None:
        """Connect and declare. Waits until the server is there."""

    async def start(self) -> None:
        """Begin to hand over."""

    async def drain(self) -> None:
        """Take nothing new, and end when what was taken is settled."""

    async def stop(self) -> None:
        """Say what is still in the buffers and close."""

    async def died(self) -> None:
        """Wait until a consumer dies of a defect, and raise it."""

    async def publish(self, messages: Sequence[Unsent]) -> list[Receipt | None]:
        """Say messages in this order; None where no receipt came. Raises UnavailableError when none could be said."""

    async def look(self, stream: str) -> StreamState | None:
        """Return the state of a stream; None: it is gone, and will be declared again. Raises UnavailableError."""

    async def ask(self, subject: str, body: bytes, *, timeout: float, traceparent: str | None = None) -> bytes:
        """Return the answer. Raises UnavailableError without one in time, RefusedError when refused."""


class Outbox(Protocol):
    """The relay's view of a store: what is committed and not yet said. Every method raises UnavailableError."""

    async def unsent(self, limit: int) -> list[Unsent]:
        """Return the first unsent messages in order."""

    async def mark_sent(self, receipts: Sequence[Sent]) -> None:
        """Note receipts; one that was asked for again meanwhile stays unsent."""

    async def rename(self, messages: Sequence[Unsent]) -> None:
        """Give messages a new message id."""

    async def doubt(self, seconds: float, limit: int) -> int:
        """Mark what was sent in the last seconds as unsent, but keep its receipts. Return how many."""

    async def last_sequence(self, stream: str) -> int:
        """Return the highest sequence that the stream gave a receipt for."""

    async def lost_beyond(self, stream: str, sequence: int, *, since_seconds: float) -> int:
        """Mark as unsent what the stream had stored beyond a sequence. Return how many."""

    async def created_seen(self, stream: str) -> datetime | None:
        """Return which incarnation of the stream was seen last."""

    async def note_created(self, stream: str, created: datetime) -> None:
        """Remember which incarnation of the stream was seen."""


class Store(Protocol):
    """Where state, inbox and outbox are, under one transaction. ``telemetry``: what its turns tell."""

    telemetry: Telemetry | None

    def turn(self) -> AbstractAsyncContextManager[Turn]:
        """Open a turn: commit at the end, roll back on any error. Raises TransientError."""

    def outbox(self) -> AbstractAsyncContextManager[Outbox | None]:
        """Open the outbox for a relay; None: another relay of this service has it. Raises UnavailableError."""

    def on_commit(self, action: Callable[[], None]) -> None:
        """Do this after each commit that said something."""
