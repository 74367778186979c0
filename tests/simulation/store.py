"""One service's schema in memory: committed state, inbox and outbox, under one transaction."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from schemas.base import Envelope, Event
from schemas.catalog import FACTS
from schemas.ids import fact_id
from tests.simulation.timeline import SkewedClock

TYPES: Final = {fact.event: fact.type for fact in FACTS}
QUIET_SECONDS: Final = 5.0
S = TypeVar("S")


class BreachError(AssertionError):
    """A promise of the product does not hold."""


@dataclass(slots=True)
class Row:
    """A fact in the outbox. ``sent_at`` None: it waits to be said. ``asks``: its sayer misses the answer."""

    envelope: Envelope
    cause: UUID | None
    asks: bool = False
    sent_at: float | None = None


class Turn(Generic[S]):
    """What takes effect whole or not at all: ``state`` is what the transaction sees."""

    def __init__(self, source: str, now: datetime, state: S) -> None:
        self.now = now
        self.state = state
        self.said: list[Envelope] = []
        self.again: list[tuple[UUID, bool]] = []
        self.again_for: list[UUID] = []
        self.relinked: dict[UUID, UUID] = {}
        self.heard: list[tuple[str, UUID]] = []
        self.actions: list[Callable[[], None]] = []
        self._source = source

    def emit(self, event: Event, *, scope: str, key: str, version: int, cause: Envelope | UUID | None = None) -> UUID:
        """Say a fact when the turn commits."""
        kind = TYPES[type(event)]
        identity = fact_id(kind, key, version)
        because = cause.id if isinstance(cause, Envelope) else cause
        self.said.append(Envelope(identity, kind, self._source, self.now, scope, key, version, event, because))
        return identity

    def say_again(self, ids: Collection[UUID], *, asks: bool = False) -> None:
        """Say facts again when the turn commits; ``asks``: whoever has heard them shall answer again."""
        self.again += [(identity, asks) for identity in ids]

    def answer_again(self, causes: Collection[UUID]) -> None:
        """Say again what answered these facts."""
        self.again_for += causes

    def answer_another(self, answers: Mapping[UUID, UUID]) -> None:
        """Let facts that were said count as answers to others (id -> cause) from now on."""
        self.relinked |= answers

    def after_commit(self, action: Callable[[], None]) -> None:
        """Do this once the commit is certain."""
        self.actions.append(action)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a backup has of a store."""

    state: Any
    inbox: frozenset[tuple[str, UUID]]
    rows: Mapping[UUID, Row]
    unsent: Mapping[UUID, None]
    said: int
    by_cause: Mapping[UUID, Mapping[UUID, None]]


class Store(Generic[S]):
    """What a service has committed. It outlives every crash of the service."""

    def __init__(self, name: str, state: S, clock: SkewedClock, copy: Callable[[S], S] = lambda state: state) -> None:
        self.name = name
        self.state = state
        self.clock = clock
        self.inbox: set[tuple[str, UUID]] = set()
        self.rows: dict[UUID, Row] = {}
        self.unsent: dict[UUID, None] = {}
        self.said: list[Envelope] = []  # every fact ever committed, in order
        self._by_cause: dict[UUID, dict[UUID, None]] = {}
        self._copy = copy

    def turn(self) -> Turn[S]:
        """Open a turn on what is committed."""
        return Turn(self.name, self.clock.now(), self._copy(self.state))

    def commit(self, turn: Turn[S]) -> None:
        """Make a turn's effects certain."""
        self.state = turn.state
        self.inbox.update(turn.heard)
        for envelope in turn.said:
            self._put(envelope)
        for identity, cause in turn.relinked.items():
            self._link(identity, cause)
        for cause in turn.again_for:
            turn.say_again(self._by_cause.get(cause, ()))
        for identity, asks in turn.again:
            self._say_again(identity, asks=asks)

    def save(self) -> Saved:
        """Return a backup of all that is committed."""
        rows = {identity: replace(row) for identity, row in self.rows.items()}
        causes = {cause: dict(found) for cause, found in self._by_cause.items()}
        return Saved(self.state, frozenset(self.inbox), rows, dict(self.unsent), len(self.said), causes)

    def bring_back(self, saved: Saved) -> None:
        """Let be committed what a backup has, and nothing else."""
        self.state, self.inbox = saved.state, set(saved.inbox)
        self.rows = {identity: replace(row) for identity, row in saved.rows.items()}
        self.unsent = dict(saved.unsent)
        self._by_cause = {cause: dict(found) for cause, found in saved.by_cause.items()}
        del self.said[saved.said :]

    def lose(self, stream: str) -> None:
        """Let the relay find that a stream has lost all it was given."""
        for identity, row in self.rows.items():
            if row.sent_at is not None and row.envelope.type.startswith(stream):
                row.sent_at, row.asks = None, False
                self.unsent[identity] = None

    def _put(self, envelope: Envelope) -> None:
        if envelope.id in self.rows:
            raise BreachError(f"I4: {self.name} says {envelope.type} of {envelope.key} twice as {envelope.version}")
        self.rows[envelope.id] = Row(envelope, None)
        self.unsent[envelope.id] = None
        self.said.append(envelope)
        if envelope.cause is not None:
            self._link(envelope.id, envelope.cause)

    def _link(self, identity: UUID, cause: UUID) -> None:
        row = self.rows.get(identity)
        if row is None:
            return
        if row.cause is not None:
            del self._by_cause[row.cause][identity]
        row.cause = cause
        self._by_cause.setdefault(cause, {})[identity] = None

    def _say_again(self, identity: UUID, *, asks: bool) -> None:
        row = self.rows.get(identity)
        if row and row.sent_at is not None and row.sent_at < self.clock.monotonic() - QUIET_SECONDS:
            row.sent_at, row.asks = None, asks
            self.unsent[identity] = None
