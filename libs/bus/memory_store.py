"""The memory twin of a service's schema in Postgres: state, inbox and outbox under one transaction."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from libs.bus.turn import QUIET_SECONDS, Turn
from libs.clock import Clock
from libs.errors import UnavailableError
from libs.pg.outbox import ASKS, Message, Sent, Unsent
from libs.pg.pool import Connection
from libs.telemetry.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the outbox."""

    item: Unsent
    created_at: datetime
    sent_at: datetime | None = None
    sequence: int = 0

    def unsent(self, *, asks: bool = False) -> "Row":
        """Return the row as it waits to be said once more."""
        plain = {name: value for name, value in self.item.message.headers.items() if name != ASKS}
        message = replace(self.item.message, headers={**plain, ASKS: ""} if asks else plain)
        item = replace(self.item, said=self.item.said + 1, message=message, sequence=0)
        return replace(self, item=item, sent_at=None, sequence=0)

    def doubted(self) -> "Row":
        """Return the row as it waits to be looked for under the same message id."""
        return replace(self, item=replace(self.item, sequence=self.sequence), sent_at=None)


@dataclass(slots=True)
class Tables:
    """What a transaction sees. ``state`` is the service's own: frozen values by name."""

    state: dict[str, object]
    inbox: set[tuple[str, UUID]]
    rows: dict[UUID, Row]

    def copy(self) -> "Tables":
        """Return what a transaction may change without being seen."""
        return Tables(dict(self.state), set(self.inbox), dict(self.rows))


class MemoryTurn(Turn):
    """A turn in memory; ``state`` is what a Postgres turn has behind its connection."""

    def __init__(
        self, source: str, now: datetime, tables: Tables, *, quiet_seconds: float, telemetry: Telemetry | None
    ) -> None:
        super().__init__(source, now, quiet_seconds=quiet_seconds, telemetry=telemetry)
        self.tables = tables

    @property
    def state(self) -> dict[str, object]:
        """The service's frozen values by name; changes are undone with the turn."""
        return self.tables.state

    @property
    def connection(self) -> Connection:
        """There is none."""
        raise AssertionError("a turn in memory has no connection")

    async def unseen(self, durable: str, ids: Collection[UUID]) -> set[UUID]:
        """Note the ids and return those that were not there."""
        fresh = {each for each in ids if (durable, each) not in self.tables.inbox}
        self.tables.inbox |= {(durable, each) for each in fresh}
        return fresh

    async def say_again(self, ids: Collection[UUID], *, asks: bool = False) -> int:
        """Mark facts as unsent."""
        return self._unsend([row for row in self.tables.rows.values() if row.item.message.id in ids], asks=asks)

    async def answer_again(self, causes: Collection[UUID]) -> int:
        """Mark the answers to these facts as unsent."""
        return self._unsend([row for row in self.tables.rows.values() if row.item.message.cause in causes])

    def flush(self, first_position: int) -> None:
        """Write what was said to the outbox."""
        for position, message in enumerate(self._messages, first_position):
            self.tables.rows.setdefault(message.id, Row(Unsent(position, 1, message), self.now))

    @property
    def messages(self) -> Sequence[Message]:
        """What was said in this turn."""
        return tuple(self._messages)

    def _unsend(self, rows: Sequence[Row], *, asks: bool = False) -> int:
        sent = [row for row in rows if row.sent_at and (self.now - row.sent_at).total_seconds() > self._quiet_seconds]
        self.tables.rows |= {row.item.message.id: row.unsent(asks=asks) for row in sent}
        return len(sent)

    @asynccontextmanager
    async def _undo(self) -> AsyncIterator[None]:
        before = self.tables.copy()
        try:
            yield
        except BaseException:
            self.tables = before
            raise

    def _undone(self) -> AbstractAsyncContextManager[None]:
        return self._undo()


class MemoryStore:
    """One service's state, inbox and outbox. Turns come one after the other; it can be taken away for a while."""

    def __init__(self, service: str, clock: Clock, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self.up = True
        self.telemetry: Telemetry | None = None
        self.tables = Tables({}, set(), {})
        self._service = service
        self._clock = clock
        self._quiet_seconds = quiet_seconds
        self._streams: dict[str, datetime] = {}
        self._positions = 1
        self._one_at_a_time = asyncio.Lock()
        self._committed: list[Callable[[], None]] = []

    def on_commit(self, action: Callable[[], None]) -> None:
        """Do this after each commit."""
        self._committed.append(action)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[MemoryTurn]:
        """Open a turn: commit at the end, roll back on any error. Raises UnavailableError."""
        async with self._one_at_a_time:
            self._require_up()
            now = self._clock.now()
            tables, quiet = self.tables.copy(), self._quiet_seconds
            turn = MemoryTurn(self._service, now, tables, quiet_seconds=quiet, telemetry=self.telemetry)
            yield turn
            self._require_up()
            turn.flush(self._positions)
            self._positions += len(turn.messages)
            self.tables = turn.tables
        turn.finish()
        for action in self._committed:
            action()

    @asynccontextmanager
    async def outbox(self) -> AsyncIterator["MemoryStore | None"]:
        """Open the outbox for the relay."""
        self._require_up()
        yield self

    async def unsent(self, limit: int) -> list[Unsent]:
        """Return the first unsent messages in order."""
        self._require_up()
        waiting = sorted((row.item for row in self.tables.rows.values() if not row.sent_at), key=_position)
        return waiting[:limit]

    async def mark_sent(self, receipts: Sequence[Sent]) -> None:
        """Note receipts; one that was asked for again meanwhile stays unsent."""
        self._require_up()
        by_position = {row.item.position: row for row in self.tables.rows.values()}
        for receipt in receipts:
            row = by_position[receipt.position]
            if row.item.said == receipt.said:
                sent = replace(row, sent_at=self._clock.now(), sequence=receipt.sequence)
                self.tables.rows[row.item.message.id] = sent

    async def rename(self, messages: Sequence[Unsent]) -> None:
        """Give messages a new message id."""
        self._require_up()
        for item in messages:
            row = self.tables.rows[item.message.id]
            self.tables.rows[item.message.id] = replace(row, item=replace(item, said=item.said + 1))

    async def doubt(self, seconds: float, limit: int) -> int:
        """Mark what was sent in the last seconds as unsent, but keep its receipts. Return how many."""
        now = self._clock.now()
        recent = [
            row for row in self.tables.rows.values() if row.sent_at and (now - row.sent_at).total_seconds() < seconds
        ][-limit:]
        self.tables.rows |= {row.item.message.id: row.doubted() for row in recent}
        return len(recent)

    async def last_sequence(self, stream: str) -> int:
        """Return the highest sequence that the stream gave a receipt for."""
        rows = self.tables.rows.values()
        return max((row.sequence for row in rows if row.sent_at and row.item.message.stream == stream), default=0)

    async def lost_beyond(self, stream: str, sequence: int, *, since_seconds: float) -> int:
        """Mark as unsent what the stream had stored beyond a sequence. Return how many."""
        now = self._clock.now()
        lost = [
            row
            for row in self.tables.rows.values()
            if row.item.message.stream == stream
            and row.sent_at
            and row.sequence > sequence
            and (now - row.created_at).total_seconds() < since_seconds
        ]
        self.tables.rows |= {row.item.message.id: row.unsent() for row in lost}
        return len(lost)

    async def created_seen(self, stream: str) -> datetime | None:
        """Return which incarnation of the stream was seen last."""
        return self._streams.get(stream)

    async def note_created(self, stream: str, created: datetime) -> None:
        """Remember which incarnation of the stream was seen."""
        self._streams[stream] = created

    def _require_up(self) -> None:
        if not self.up:
            raise UnavailableError("the memory store is away")


def _position(item: Unsent) -> int:
    return item.position
