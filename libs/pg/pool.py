"""Connections to Postgres that survive cancellation and restarts (a cancelled task leaves no open transaction)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import asyncpg
from asyncpg.protocol import protocol

from libs.errors import ConflictError, PoisonError, TransientError, UnavailableError, says_cut

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    Lent: TypeAlias = PoolConnectionProxy[asyncpg.Record]
else:
    Connection: TypeAlias = asyncpg.Connection
    Pool: TypeAlias = asyncpg.Pool
Record: TypeAlias = asyncpg.Record

T = TypeVar("T")

ARRAYS: Final = """
SELECT $1::text[], $2::uuid[], $3::int[], $4::bigint[], $5::smallint[], $6::boolean[], $7::timestamptz[], $8::bytea[],
       $9::json[], $10::jsonb[]
"""

# What counts as an array. asyncpg asks that of every element, too, and asks an ABC, which runs in Python: that takes
# longer than to encode the element (ADR 0019).
vars(protocol)["IterableABC"] = (list, tuple)

ACQUIRE_SECONDS: Final = 10.0  # longer than any turn: the pool is too small or the server hangs
COMMAND_SECONDS: Final = 30.0
_LIMITS: Final = {
    "statement_timeout": "30s",
    "lock_timeout": "5s",  # a waiter gives up and tries again, so that one stuck writer stops no queue
    "idle_in_transaction_session_timeout": "10s",  # the server ends what a dead client left open
    "enable_seqscan": "off",  # a plan made while a table was empty is kept, and scanned thousands of rows for hundreds
}


async def open_pool(dsn: str, *, schema: str, minimum: int = 1, maximum: int = 5) -> Pool:
    """Open a pool whose connections see their own schema first. Raises UnavailableError."""
    with translated():
        return await asyncpg.create_pool(
            dsn,
            init=_taught,
            connection_class=_Connection,
            min_size=minimum,
            max_size=maximum,
            timeout=5.0,
            command_timeout=COMMAND_SECONDS,
            server_settings=_server_settings(schema),
            reset=_left_clean,
            max_cached_statement_lifetime=0,  # or a timer each, whose context holds the batch of the turn for minutes
        )


class _Connection(asyncpg.Connection):
    """Asks for what a built-in type is once a process, not once a connection: a question takes 8 ms of a processor."""

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float) -> tuple[list[Record], Any]:
        wanted = frozenset(typeoids)
        if (known := _KNOWN_TYPES.get(wanted)) is not None:
            return known, _UNPREPARED
        found: tuple[list[Record], Any] = await super()._introspect_types(typeoids, timeout)  # type: ignore[misc]
        if max(wanted) < _FIRST_OWN_TYPE:
            _KNOWN_TYPES[wanted] = found[0]
        return found


_KNOWN_TYPES: Final[dict[frozenset[int], list[Record]]] = {}
_FIRST_OWN_TYPE: Final = 16_384  # what a database has made itself is numbered from here on, and is other in each
_UNPREPARED: Final = SimpleNamespace(name="")  # no statement was made on this connection to learn it


async def _taught(connection: Connection) -> None:
    """Let a connection learn all our arrays at once, not some with each statement."""
    await connection.prepare(ARRAYS)


async def _left_clean(connection: Connection) -> None:
    """Spare four statements a loan: nothing is set that outlives a transaction, and asyncpg ends one left open."""
    del connection


async def connect(dsn: str, *, schema: str) -> Connection:
    """Open one connection outside any pool. Raises UnavailableError."""
    with translated():
        return await asyncpg.connect(
            dsn,
            connection_class=_Connection,
            timeout=5.0,
            command_timeout=COMMAND_SECONDS,
            server_settings=_server_settings(schema),
        )


def _nothing() -> None:
    """Stand for an action that is not wanted."""


@asynccontextmanager
async def transaction(pool: Pool, committed: Callable[[], None] = _nothing) -> AsyncIterator[Connection]:
    """Lend a connection inside a transaction: commit at the end, roll back on any error or cancellation.

    Commit, rollback and giving back are never interrupted; ``committed`` is called once the commit is certain.
    Raises UnavailableError, ConflictError, TransientError, and PoisonError for values that Postgres can not hold.
    """
    with translated():
        connection = await _acquire(pool)
        try:
            async with _block(connection, committed):
                yield connection
        finally:
            await uninterrupted(pool.release(connection))


@asynccontextmanager
async def savepoint(connection: Connection) -> AsyncIterator[None]:
    """Undo what was done inside when it raises; the transaction around it goes on. Raises as a transaction does."""
    with translated():
        async with _block(connection, _nothing):
            yield


async def uninterrupted(work: Awaitable[T]) -> T:
    """Await the work to its end even when this task is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is None:
        return task.result()
    if not task.cancelled() and (failure := task.exception()) is not None:
        raise cancellation from failure
    raise cancellation


@contextmanager
def translated() -> Iterator[None]:
    """Raise what Postgres and the network raise as UnavailableError, ConflictError, TransientError or PoisonError."""
    try:
        yield
    except _UNAVAILABLE as error:
        raise UnavailableError(f"Postgres does not answer: {type(error).__name__}") from error
    except _NO_ROOM as error:
        raise UnavailableError(f"Postgres has no room: {error}") from error
    except _CONFLICTS as error:
        raise ConflictError(f"{type(error).__name__}: {error}") from error
    except _NEVER_HELD as error:
        raise PoisonError(f"Postgres can not hold this: {error}") from error
    except asyncpg.QueryCanceledError as error:
        raise TransientError("Postgres cancelled a statement that took too long") from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError, RuntimeError) as error:
        if _lost(error):
            raise UnavailableError("the connection to Postgres is gone") from error
        raise


_UNAVAILABLE: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
_NO_ROOM: Final = (asyncpg.InsufficientResourcesError, asyncpg.PostgresIOError)
_NEVER_HELD: Final = (asyncpg.DataError, asyncpg.CheckViolationError, asyncpg.NotNullViolationError)
_CONFLICTS: Final = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.UniqueViolationError,
    asyncpg.ExclusionViolationError,
    asyncpg.ForeignKeyViolationError,
)


def _lost(error: Exception) -> bool:
    """The last: the server has said that it shuts down, and has not cut the connection yet."""
    if isinstance(error, RuntimeError):
        return says_cut(error)
    return any(
        words in str(error) for words in ("closed", "released", "free connection holder", "cannot switch to state")
    )


def _server_settings(schema: str) -> dict[str, str]:
    return {"search_path": f"{schema},public", "application_name": f"triplane-{schema}", "timezone": "UTC", **_LIMITS}


async def _acquire(pool: Pool) -> "Lent":
    """Take a connection; when cancelled on the way, give back what arrives all the same."""
    task = asyncio.ensure_future(pool.acquire(timeout=ACQUIRE_SECONDS))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancel() and not task.cancelled() and task.exception() is None:
            await uninterrupted(pool.release(task.result()))
        else:
            task.add_done_callback(lambda done: _give_back(pool, done))
        raise


def _give_back(pool: Pool, task: "asyncio.Future[Lent]") -> None:
    if not task.cancelled() and task.exception() is None:
        releasing = asyncio.ensure_future(pool.release(task.result()))
        _RELEASING.add(releasing)
        releasing.add_done_callback(_RELEASING.discard)


_RELEASING: Final[set["asyncio.Future[None]"]] = set()  # the loop itself holds tasks only weakly


@asynccontextmanager
async def _block(connection: Connection, committed: Callable[[], None]) -> AsyncIterator[None]:
    block = connection.transaction()
    await block.start()
    try:
        yield
    except BaseException:
        await uninterrupted(_rolled_back(connection, block))
        raise
    await uninterrupted(_commit(block, committed))


async def _commit(block: asyncpg.transaction.Transaction, committed: Callable[[], None]) -> None:
    await block.commit()
    committed()


async def _rolled_back(connection: Connection, block: asyncpg.transaction.Transaction) -> None:
    """Roll back, or cut the connection when it cannot even do that: the server then rolls back by itself."""
    try:
        await block.rollback()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError):
        connection.terminate()
