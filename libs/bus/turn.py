"""A turn: one transaction with what was heard, what changes, and what is said about it."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Final
from uuid import UUID

from libs.bus.subjects import message
from libs.errors import PoisonError
from libs.pg import inbox, outbox
from libs.pg.outbox import Message
from libs.pg.pool import Connection, savepoint
from libs.telemetry.telemetry import Telemetry, unread
from libs.telemetry.traces import Cause
from schemas.base import Envelope, Event
from schemas.catalog import FACTS
from schemas.codec import CodecError
from schemas.ids import fact_id

TYPES: Final = {fact.event: fact.type for fact in FACTS}
QUIET_SECONDS: Final = 5.0  # what was just said is not said again yet: the answer may be on its way


class Turn(ABC):
    """What takes effect whole or not at all. ``now`` is the store's clock at the start of the turn, aware UTC."""

    def __init__(
        self,
        source: str,
        now: datetime,
        *,
        quiet_seconds: float = QUIET_SECONDS,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.now = now
        self._source = source
        self._quiet_seconds = quiet_seconds
        self._telemetry = telemetry or unread()
        self._messages: list[Message] = []
        self._facts: list[tuple[Envelope, Cause]] = []
        self._actions: list[Callable[[], None]] = []

    @property
    @abstractmethod
    def connection(self) -> Connection:
        """The Postgres connection inside the transaction."""

    def emit(self, event: Event, *, scope: str, key: str, version: int, cause: Cause = None) -> UUID:
        """Say a fact when the turn commits; return its id, the same for the same type, key and version.

        ``version`` counts the entity's facts; ``cause`` is the fact that this one answers, or its id when it was
        heard in an earlier turn.
        Raises KeyError for an event that is not in the catalogue, PoisonError for what can not be said: a token that
        is none, or too much.
        """
        kind = TYPES[type(event)]
        identity = fact_id(kind, key, version)
        envelope = Envelope(
            id=identity,
            type=kind,
            source=self._source,
            time=self.now,
            scope=scope,
            key=key,
            version=version,
            data=event,
            cause=cause.id if isinstance(cause, Envelope) else cause,
            traceparent=self._telemetry.tracer.traceparent(event, identity, kind, cause),
        )
        try:
            self.put(message(envelope, traced=self._telemetry.tracer.records(envelope)))
        except CodecError as error:
            raise PoisonError(f"what comes of it can not be said: {error}") from error
        self._facts.append((envelope, cause))
        return identity

    def put(self, said: Message) -> None:
        """Say a message when the turn commits."""
        self._messages.append(said)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Do this, quickly and without an error, once the commit is certain."""
        self._actions.append(action)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Undo what was changed and said inside when it raises; the turn goes on."""
        messages, facts, actions = len(self._messages), len(self._facts), len(self._actions)
        try:
            async with self._undone():
                yield
        except BaseException:
            del self._messages[messages:], self._facts[facts:], self._actions[actions:]
            raise

    @abstractmethod
    async def unseen(self, durable: str, ids: Collection[UUID]) -> set[UUID]:
        """Note the ids of messages and return those that the durable had not taken before."""

    @abstractmethod
    async def say_again(self, ids: Collection[UUID], *, asks: bool = False) -> int:
        """Say facts again under the same ids, but not what was just said. Return how many.

        ``asks``: their answers are missed, so whoever has heard them before answers again. An answer asks for none.
        """

    @abstractmethod
    async def answer_again(self, causes: Collection[UUID]) -> int:
        """Say again the facts that answered these facts, but not what was just said. Return how many."""

    @abstractmethod
    def _undone(self) -> AbstractAsyncContextManager[None]:
        """Undo what the store holds of the block when it raises."""

    def finish(self) -> None:
        """Do what was left for after the commit."""
        self._telemetry.said(self._facts)
        for action in self._actions:
            action()


class PostgresTurn(Turn):
    """A turn in a Postgres transaction."""

    def __init__(
        self,
        source: str,
        now: datetime,
        connection: Connection,
        *,
        quiet_seconds: float = QUIET_SECONDS,
        telemetry: Telemetry | None = None,
    ) -> None:
        super().__init__(source, now, quiet_seconds=quiet_seconds, telemetry=telemetry)
        self._connection = connection
        self.said_again = 0

    @property
    def connection(self) -> Connection:
        """The connection inside the transaction."""
        return self._connection

    @property
    def says(self) -> bool:
        """Whether the relay has something to do after the commit."""
        return bool(self._messages or self.said_again)

    async def unseen(self, durable: str, ids: Collection[UUID]) -> set[UUID]:
        """Note the ids in the inbox and return those that were not there."""
        return await inbox.unseen(self._connection, durable, ids)

    async def say_again(self, ids: Collection[UUID], *, asks: bool = False) -> int:
        """Mark facts in the outbox as unsent."""
        quiet = self._quiet_seconds
        count = await outbox.say_again(self._connection, ids, quiet_seconds=quiet, asks=asks) if ids else 0
        self.said_again += count
        return count

    async def answer_again(self, causes: Collection[UUID]) -> int:
        """Mark the answers to these facts as unsent."""
        count = await outbox.answer_again(self._connection, causes, quiet_seconds=self._quiet_seconds) if causes else 0
        self.said_again += count
        return count

    async def flush(self) -> None:
        """Write what was said to the outbox."""
        await outbox.put(self._connection, self._messages)

    def _undone(self) -> AbstractAsyncContextManager[None]:
        return savepoint(self._connection)
