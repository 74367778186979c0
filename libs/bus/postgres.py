"""The store of a service in Postgres: its turns, and the outbox for its relay."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

from libs.bus.turn import QUIET_SECONDS, PostgresTurn
from libs.errors import UnavailableError
from libs.pg import outbox
from libs.pg.outbox import Sent, Unsent
from libs.pg.pool import Connection, Pool, connect, transaction, translated, uninterrupted
from libs.telemetry.telemetry import Telemetry

_LEADER: Final = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"


class PostgresStore:
    """Turns in transactions of a pool; one relay of all replicas at a time has the outbox."""

    def __init__(self, service: str, dsn: str, pool: Pool, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self.telemetry: Telemetry | None = None
        self._service = service
        self._dsn = dsn
        self._pool = pool
        self._quiet_seconds = quiet_seconds
        self._committed: list[Callable[[], None]] = []

    def on_commit(self, action: Callable[[], None]) -> None:
        """Do this after each commit that said something."""
        self._committed.append(action)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[PostgresTurn]:
        """Open a turn: commit at the end, roll back on any error or cancellation. Raises TransientError."""
        finished: list[PostgresTurn] = []
        async with transaction(self._pool, lambda: self._finish(finished[0])) as connection:
            now: datetime = await connection.fetchval("SELECT now()")
            quiet, telemetry = self._quiet_seconds, self.telemetry
            turn = PostgresTurn(self._service, now, connection, quiet_seconds=quiet, telemetry=telemetry)
            finished.append(turn)
            yield turn
            await turn.flush()

    @asynccontextmanager
    async def outbox(self) -> AsyncIterator["PostgresOutbox | None"]:
        """Open the outbox on a connection of its own, which holds the lock of the service's one relay."""
        connection = await connect(self._dsn, schema=self._service)
        try:
            with translated():
                leads = await connection.fetchval(_LEADER, f"relay {self._service}")
            yield PostgresOutbox(connection) if leads else None
        finally:
            await uninterrupted(_closed(connection))

    def _finish(self, turn: PostgresTurn) -> None:
        turn.finish()
        if turn.says:
            for action in self._committed:
                action()


class PostgresOutbox:
    """The outbox on one connection. Every method raises UnavailableError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def unsent(self, limit: int) -> list[Unsent]:
        """Return the first unsent messages in order."""
        with translated():
            return await outbox.unsent(self._connection, limit)

    async def mark_sent(self, receipts: Sequence[Sent]) -> None:
        """Note receipts; one that was asked for again meanwhile stays unsent."""
        with translated():
            await outbox.mark_sent(self._connection, receipts)

    async def rename(self, messages: Sequence[Unsent]) -> None:
        """Give messages a new message id."""
        with translated():
            await outbox.rename(self._connection, messages)

    async def doubt(self, seconds: float, limit: int) -> int:
        """Mark what was sent in the last seconds as unsent, but keep its receipts. Return how many."""
        with translated():
            return await outbox.doubt(self._connection, seconds=seconds, limit=limit)

    async def last_sequence(self, stream: str) -> int:
        """Return the highest sequence that the stream gave a receipt for."""
        with translated():
            return await outbox.last_sequence(self._connection, stream)

    async def lost_beyond(self, stream: str, sequence: int, *, since_seconds: float) -> int:
        """Mark as unsent what the stream had stored beyond a sequence. Return how many."""
        with translated():
            return await outbox.lost_beyond(self._connection, stream, sequence, since_seconds=since_seconds)

    async def created_seen(self, stream: str) -> datetime | None:
        """Return which incarnation of the stream was seen last."""
        with translated():
            return await outbox.created_seen(self._connection, stream)

    async def note_created(self, stream: str, created: datetime) -> None:
        """Remember which incarnation of the stream was seen."""
        with translated():
            await outbox.note_created(self._connection, stream, created)


async def _closed(connection: Connection) -> None:
    try:
        with translated():
            await connection.close(timeout=2.0)
    except UnavailableError:
        connection.terminate()
