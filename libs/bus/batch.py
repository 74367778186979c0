"""A turn over a batch: inbox check, handler and outbox in one transaction; then the acks.

This is the one place that catches. The transient is delivered again, poison is set aside alone, and a defect is
raised after everything else of its batch was settled, so that the process restarts and its neighbours lose nothing.
"""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from pydantic import ValidationError

from libs.bus.dead import Kind, letter
from libs.bus.ports import MAX_DELIVER, Delivery, Store
from libs.bus.turn import Turn
from libs.errors import ConflictError, PoisonError, TransientError
from libs.log import get_logger
from libs.pg.outbox import ASKS
from libs.telemetry.telemetry import Telemetry, unread
from libs.telemetry.traces import Kind as SpanKind
from schemas.base import Envelope
from schemas.catalog import BY_TYPE
from schemas.codec import CodecError, decode, says

Handler = Callable[[Turn, Sequence[Envelope]], Awaitable[None]]
T = TypeVar("T")

FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 60.0
CONFLICT_RETRY_SECONDS: Final = (0.05, 0.2, 0.5)
STORE_RETRY_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0)  # and then the last again and again
log = get_logger(__name__)


class Remembering(ABC):
    """A handler that knows for good what it took: nothing is noted in the inbox for it."""

    @abstractmethod
    async def unseen(self, turn: Turn, ids: Collection[UUID]) -> set[UUID]:
        """Return the ids that were not taken before, and let no rival take them before the turn is over."""

    @abstractmethod
    async def __call__(self, turn: Turn, facts: Sequence[Envelope]) -> None:
        """Take facts that were not taken before."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A delivery and the fact in it, or why there is none."""

    delivery: Delivery
    envelope: Envelope | None
    fault: str = ""

    @property
    def asked_again(self) -> bool:
        """Whether its sayer misses an answer; what fills a stream again after a loss does not ask."""
        return ASKS in self.delivery.headers


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a delivery: acknowledged, or delivered again; with the defect that it showed."""

    delivery: Delivery
    again: bool = False
    defect: Exception | None = None


class Batches:
    """Takes the batches of one durable, each in a turn.

    What is said again on purpose was perhaps answered, and the answer lost: the facts that it caused are said again,
    and ``again`` is handed the message, to say what else answers it.
    """

    def __init__(
        self,
        service: str,
        durable: str,
        handler: Handler,
        store: Store,
        *,
        again: Handler | None = None,
        ack_wait_seconds: float = 30.0,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._service = service
        self._durable = durable
        self._handler = handler
        self._again = again
        self._store = store
        self._beat_seconds = ack_wait_seconds / 3
        self._telemetry = telemetry or unread()

    async def take(self, deliveries: Sequence[Delivery]) -> None:
        """Handle a batch and settle every delivery of it. Raises the handler's defects only, at the end."""
        await self._telemetry.meters.spending(f"take {self._durable}", self._take(deliveries))

    async def _take(self, deliveries: Sequence[Delivery]) -> None:
        batch = [opened(delivery) for delivery in deliveries]
        with self._told(batch):
            async with _kept_alive(deliveries, self._beat_seconds):
                verdicts = await self._judged(batch)
        for verdict in verdicts:
            await _settle(verdict)
        for verdict in verdicts:
            if verdict.defect is not None:
                raise verdict.defect

    @contextmanager
    def _told(self, batch: Sequence[Opened]) -> Iterator[None]:
        """Tell of the turn: one span, linked to what it takes in, its time and its size."""
        meters, began = self._telemetry.meters, time.perf_counter()
        meters.turn_messages.labels(self._durable).observe(len(batch))
        if again := sum(item.delivery.attempt > 1 for item in batch):
            meters.redeliveries.labels(self._durable).inc(again)
        heard = (item.envelope.traceparent for item in batch if item.envelope is not None)
        with self._telemetry.tracer.activity(f"take {self._durable}", SpanKind.CONSUMER, heard=heard):
            yield
        meters.turn_seconds.labels(self._durable).observe(time.perf_counter() - began)

    async def _judged(self, batch: Sequence[Opened]) -> list[Verdict]:
        result = await past_conflicts(lambda: self._together(batch))  # no message is to blame that a rival was faster
        if isinstance(result, list):
            return result
        log.info("batch goes apart", durable=self._durable, n=len(batch), why=repr(result))
        self._telemetry.meters.apart.labels(self._durable).inc()
        return [await until_available(partial(self._apart, item), what=self._durable) for item in batch]

    async def _together(self, batch: Sequence[Opened]) -> list[Verdict]:
        async with self._store.turn() as turn:
            first = {item.envelope.id: item.envelope for item in reversed(batch) if item.envelope is not None}
            unseen = await self._unseen(turn, first) if first else set()
            fresh = [item for item in batch if item.envelope and item.envelope is first[item.envelope.id]]
            facts = [item.envelope for item in fresh if item.envelope and item.envelope.id in unseen]
            if facts:
                await self._handler(turn, facts)
            await self._answer(turn, _answers_missed(batch, unseen))
            for item in batch:
                self._bury_undecodable(turn, item)
        self._telemetry.meters.taken(fact.type for fact in facts)
        return [Verdict(item.delivery) for item in batch]

    async def _unseen(self, turn: Turn, ids: Collection[UUID]) -> set[UUID]:
        if isinstance(self._handler, Remembering):
            return await self._handler.unseen(turn, ids)
        return await turn.unseen(self._durable, ids)

    async def _apart(self, item: Opened) -> Verdict:
        """Take one message in a turn of its own, which holds no lock of its neighbours."""
        async with self._store.turn() as turn:
            return await self._alone(turn, item)

    async def _alone(self, turn: Turn, item: Opened) -> Verdict:
        if item.envelope is None:
            self._bury_undecodable(turn, item)
            return Verdict(item.delivery)
        error = await caught(self._in_savepoint(turn, item, item.envelope))
        if error is None:
            return Verdict(item.delivery)
        verdict = self._failed(turn, item, error)
        if not (verdict.again or isinstance(error, TransientError)):
            await turn.unseen(self._durable, [item.envelope.id])  # said again, it would only die again
        return verdict

    async def _in_savepoint(self, turn: Turn, item: Opened, envelope: Envelope) -> None:
        async with turn.savepoint():
            if await self._unseen(turn, [envelope.id]):
                await self._handler(turn, [envelope])
                turn.after_commit(lambda: self._telemetry.meters.taken([envelope.type]))
            elif item.asked_again:
                await self._answer(turn, [envelope])

    async def _answer(self, turn: Turn, missed: Sequence[Envelope]) -> None:
        """Answer once more what was heard before and is asked again."""
        await turn.answer_again([envelope.id for envelope in missed])
        if missed and self._again is not None:
            await self._again(turn, missed)

    def _failed(self, turn: Turn, item: Opened, error: Exception) -> Verdict:
        log.warning("message failed", error=error, durable=self._durable, subject=item.delivery.subject)
        last = item.delivery.attempt >= MAX_DELIVER
        match error:
            case PoisonError() | ValidationError():  # the latter of a document inside a fact
                self._bury(turn, item.delivery, Kind.POISON, str(error))
                return Verdict(item.delivery)
            case TransientError():
                if last:
                    self._bury(turn, item.delivery, Kind.EXHAUSTED, str(error))
                return Verdict(item.delivery, again=not last)
            case _:
                if last:
                    self._bury(turn, item.delivery, Kind.DEFECT, repr(error))
                return Verdict(item.delivery, again=not last, defect=error)

    def _bury_undecodable(self, turn: Turn, item: Opened) -> None:
        if item.envelope is None:
            self._bury(turn, item.delivery, Kind.UNDECODABLE, item.fault)

    def _bury(self, turn: Turn, delivery: Delivery, kind: Kind, reason: str) -> None:
        log.error("dead letter", durable=self._durable, subject=delivery.subject, kind=kind, reason=reason)
        turn.put(letter(self._service, self._durable, delivery, kind, reason))
        turn.after_commit(self._telemetry.meters.dead_letters.labels(self._durable, kind).inc)


def opened(delivery: Delivery) -> Opened:
    """Decode one delivery alone, so that one bad message does not fail its batch."""
    try:
        envelope = decode(delivery.body)
        _expect_owner(envelope, delivery.subject)
    except CodecError as error:
        return Opened(delivery, None, str(error))
    return Opened(delivery, envelope)


def _expect_owner(envelope: Envelope, subject: str) -> None:
    """Raise CodecError for a fact that its owner did not say: the server lets a service say its own subjects alone."""
    if not says(subject, envelope):
        raise CodecError(f"{envelope.type} of {envelope.scope} and {envelope.key} was said elsewhere")
    if envelope.source != (owner := BY_TYPE[envelope.type].owner):
        raise CodecError(f"{envelope.source!r} says a fact of {owner}")


def retry_seconds(attempt: int) -> float:
    """Return how long to wait after the attempt-th delivery failed: 1, 2, 4, … at most 60 s."""
    return float(min(FIRST_RETRY_SECONDS * 2 ** (attempt - 1), LAST_RETRY_SECONDS))


async def caught(work: Awaitable[T]) -> T | Exception:
    """Return the result, or the exception as a value. Cancellation is raised."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the one place that catches: the caller sorts the kinds
        return error


async def past_conflicts(work: Callable[[], Awaitable[T]]) -> T | Exception:
    """Do the work, and again when another transaction was faster, a few times; return the result or the exception."""
    result = await caught(work())
    for pause in CONFLICT_RETRY_SECONDS:
        if not isinstance(result, ConflictError):
            break
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - so that rivals part
        result = await caught(work())
    return result


async def until_available(work: Callable[[], Awaitable[T]], *, what: str) -> T:
    """Do the work again while it raises TransientError: the store is away, and nothing can be noted meanwhile."""
    pauses = iter(STORE_RETRY_SECONDS)
    pause = STORE_RETRY_SECONDS[0]
    while True:
        try:
            return await work()
        except TransientError as error:
            pause = next(pauses, pause)
            log.warning("waits for the store", what=what, why=str(error), retry_seconds=pause)
            await asyncio.sleep(pause)


def _answers_missed(batch: Sequence[Opened], unseen: set[UUID]) -> list[Envelope]:
    return [item.envelope for item in batch if item.envelope and item.envelope.id not in unseen and item.asked_again]


async def _settle(verdict: Verdict) -> None:
    if verdict.again:
        await verdict.delivery.again(retry_seconds(verdict.delivery.attempt))
    else:
        await verdict.delivery.ack()


@asynccontextmanager
async def _kept_alive(deliveries: Sequence[Delivery], seconds: float) -> AsyncIterator[None]:
    """Tell the server that the batch is being worked on, for as long as that takes."""
    beating = asyncio.ensure_future(_beat(deliveries, seconds))
    try:
        yield
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating


async def _beat(deliveries: Sequence[Delivery], seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        for delivery in deliveries:
            await delivery.working()
