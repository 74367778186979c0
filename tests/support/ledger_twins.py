"""Placement's ledger twice: in memory, as simulations have it, and in Postgres, with its clock in the test's hand."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from libs.bus.turn import PostgresTurn
from libs.leases import Lease
from libs.pg.pool import Connection, Pool, transaction
from libs.service import Service
from schemas.base import Envelope
from schemas.calls import Claim, Hello, Seal, SealAnswer
from schemas.ids import GrantId, NodeId
from schemas.moves import TransferDrop, TransferHold
from services.placement.app import _sealing
from services.placement.core.decide import Decision, decide
from services.placement.core.grant import Word, override
from services.placement.handlers.deadlines import Waits
from services.placement.handlers.facts import Handlers
from services.placement.handlers.holds import Holds
from services.placement.settings import Settings
from services.placement.store import attempts, comebacks, fleet, overdue, renewal, wall
from services.placement.store.changes import Action, Changes, chained
from tests.simulation.ledger import Ledger
from tests.simulation.placement_desk import LedgerTurn, Outcome, PlacementDesk
from tests.simulation.store import Turn

T = TypeVar("T")
WORD: Final = Word("ada", "the node was scrapped")
QUIET_SECONDS: Final = 20
REPEAT_SECONDS: Final = 10.0
CLOCK: Final = """
CREATE SCHEMA IF NOT EXISTS clock;
CREATE OR REPLACE FUNCTION clock.now() RETURNS timestamptz STABLE LANGUAGE sql
    AS $$ SELECT current_setting('clock.now')::timestamptz $$;
CREATE OR REPLACE FUNCTION clock.clock_timestamp() RETURNS timestamptz STABLE LANGUAGE sql
    AS $$ SELECT current_setting('clock.now')::timestamptz $$;
GRANT USAGE ON SCHEMA clock TO PUBLIC
"""
PATH: Final = "clock,pg_catalog,placement"
"""A search path on which the clock above stands before Postgres' own."""


class Twin(Protocol):
    """What both ledgers can do. What the last turn said, said once more, and freed is kept."""

    said: list[Envelope]
    again: list[UUID]
    freed: list[Lease]

    async def hear(self, durable: str, batch: Sequence[Envelope]) -> object:
        """Take facts: "workload", "again", "fleet" or "runtime"."""

    async def claim(self, claims: Sequence[Claim]) -> object:
        """Answer claims."""

    async def hello(self, hellos: Sequence[Hello]) -> object:
        """Answer hellos."""

    async def hold(self, asked: TransferHold) -> object:
        """Take a hold."""

    async def drop(self, asked: TransferDrop) -> object:
        """Drop it."""

    async def decide(self) -> Decision | None:
        """Decide on what waits now."""

    async def grant(self, decision: Decision) -> list[tuple[GrantId, int]]:
        """Take a decision's placements through the wall; return grants and epochs."""

    async def refuse(self, decision: Decision) -> object:
        """Note its refusals; return which are to be said, as which version."""

    async def seals(self, limit: int) -> list[Seal]:
        """Take the seals that are due."""

    async def seal(self, answers: Sequence[SealAnswer]) -> object:
        """Take seals that were given."""

    async def watch(self, heard_seconds: float) -> object:
        """Let follow what follows when time passes, for one who could hear for so long."""

    async def override(self, grant: GrantId, node: NodeId) -> object:
        """Take a person's word."""

    async def leases(self, found: Sequence[Lease]) -> object:
        """Return what leases there should be, which of those found are ghosts, and which stand above the ledger."""

    async def unanswered(self) -> object:
        """Return the facts to say again."""


class MemoryTwin:
    """The ledger of the simulation."""

    def __init__(self, settings: Settings, now: Callable[[], datetime]) -> None:
        self.ledger = Ledger()
        self.said: list[Envelope] = []
        self.again: list[UUID] = []
        self.freed: list[Lease] = []
        self._now, self._desk = now, PlacementDesk(settings)

    async def hear(self, durable: str, batch: Sequence[Envelope]) -> object:
        """Take facts."""
        desk = self._desk
        handlers = {"workload": desk.workload, "again": desk.again, "fleet": desk.fleet, "runtime": desk.runtime}
        return self._turn(lambda turn: handlers[durable](turn, batch))

    async def claim(self, claims: Sequence[Claim]) -> object:
        """Answer claims."""
        return self._turn(lambda turn: self._desk.claim(turn, claims))

    async def hello(self, hellos: Sequence[Hello]) -> object:
        """Answer hellos."""
        return self._turn(lambda turn: self._desk.hello(turn, hellos))

    async def hold(self, asked: TransferHold) -> object:
        """Take a hold."""
        return self._turn(lambda turn: self._desk.hold(turn, asked))

    async def drop(self, asked: TransferDrop) -> object:
        """Drop it."""
        return self._turn(lambda turn: self._desk.drop(turn, asked))

    async def decide(self) -> Decision | None:
        """Decide."""
        return self._turn(self._desk.decide)

    async def grant(self, decision: Decision) -> list[tuple[GrantId, int]]:
        """Take placements through the wall."""
        walled = self._turn(lambda turn: self._desk.grant(turn, decision.placements))
        return [(new.id, new.epoch) for new in walled.granted]

    async def refuse(self, decision: Decision) -> object:
        """Note refusals."""

        def work(turn: LedgerTurn) -> object:
            told = turn.state.attempts.refuse(decision.refusals, turn.now, repeat_seconds=REPEAT_SECONDS)
            return sorted((each.refusal.pending.job, each.refusal.pending.attempt, each.version) for each in told)

        return self._turn(work)

    async def seals(self, limit: int) -> list[Seal]:
        """Take the seals that are due."""
        return self._turn(lambda turn: turn.state.seals_due(turn.now, limit))

    async def seal(self, answers: Sequence[SealAnswer]) -> object:
        """Take seals."""
        return self._turn(lambda turn: self._desk.take_seals(turn, answers))

    async def watch(self, heard_seconds: float) -> object:
        """Let time pass."""
        return self._turn(lambda turn: self._desk.deadlines(turn, heard_seconds))

    async def override(self, grant: GrantId, node: NodeId) -> object:
        """Take a person's word."""
        action: Action = lambda held, now: override(held, node, WORD, now=now)  # noqa: E731
        return self._turn(lambda turn: self._desk.take(turn, {grant: action}))

    async def leases(self, found: Sequence[Lease]) -> object:
        """Hold leases against the ledger."""

        def work(turn: LedgerTurn) -> object:
            ghosts, live = turn.state.ghosts(found), turn.state.live_leases()
            return _sorted(live), _sorted(ghosts), _sorted(turn.state.stop_when_behind(found))

        return self._turn(work)

    async def unanswered(self) -> object:
        """Return the facts to say again."""
        return self._turn(lambda turn: sorted(turn.state.unanswered(turn.now, quiet_seconds=QUIET_SECONDS)))

    def _turn(self, work: Callable[[LedgerTurn], T]) -> T:
        self._desk.outcome = Outcome([])
        turn = Turn("placement", self._now(), self.ledger.copy())
        result = work(turn)
        self.ledger = turn.state
        self.said, self.again = turn.said, [identity for identity, _ in turn.again]
        self.freed = self._desk.outcome.freed
        return result


class PostgresTwin:
    """The store and the handlers of the service, which is not started. The pool has the path of the clock."""

    def __init__(self, pool: Pool, settings: Settings, now: Callable[[], datetime], service: Service) -> None:
        self.said: list[Envelope] = []
        self.again: list[UUID] = []
        self.freed: list[Lease] = []
        self._pool, self._settings, self._now = pool, settings, now
        self._changes = Changes(self._free)
        wakes = dict.fromkeys(("wake_cycle", "wake_seals", "wake_deadlines"), _nothing)
        self._handlers = Handlers(self._changes, **wakes)
        self._waits = Waits(self._changes, settings)
        self._holds = Holds(service, wake_cycle=_nothing, wake_deadlines=_nothing)

    async def hear(self, durable: str, batch: Sequence[Envelope]) -> object:
        """Take facts."""
        handlers = self._handlers
        chosen = {
            "workload": handlers.workload,
            "again": handlers.again,
            "fleet": handlers.fleet,
            "runtime": handlers.runtime,
        }[durable]
        async with self.turn() as turn:
            await chosen(turn, batch)
        return None

    async def claim(self, claims: Sequence[Claim]) -> object:
        """Answer claims."""
        async with self.turn() as turn:
            return await self._handlers.claim(turn, [claim.model_dump_json().encode() for claim in claims])

    async def hello(self, hellos: Sequence[Hello]) -> object:
        """Answer hellos."""
        async with self.turn() as turn:
            return await self._handlers.hello(turn, [hello.model_dump_json().encode() for hello in hellos])

    async def hold(self, asked: TransferHold) -> object:
        """Take a hold."""
        async with self.turn() as turn:
            (answer,) = await self._holds.take(turn, [asked.model_dump_json().encode()])
        return answer

    async def drop(self, asked: TransferDrop) -> object:
        """Drop it."""
        async with self.turn() as turn:
            (answer,) = await self._holds.drop(turn, [asked.model_dump_json().encode()])
        return answer

    async def decide(self) -> Decision | None:
        """Decide."""
        async with self.turn() as turn:
            pending = await attempts.pending(turn.connection, 1_000)
            stopped = await renewal.stopped(turn.connection)
            if stopped or not pending:
                return None
            view = await fleet.load_view(turn.connection)
            return decide(view, pending, await comebacks.standing(turn.connection))

    async def grant(self, decision: Decision) -> list[tuple[GrantId, int]]:
        """Take placements through the wall."""
        seconds = self._settings.start_deadline_seconds
        async with self.turn() as turn:
            walled = await wall.grant(turn, decision.placements, start_seconds=seconds)
        return [(new.id, new.epoch) for new in walled.granted]

    async def refuse(self, decision: Decision) -> object:
        """Note refusals."""
        async with self.turn() as turn:
            told = await attempts.refuse(turn.connection, decision.refusals, repeat_seconds=REPEAT_SECONDS)
        return sorted((each.refusal.pending.job, each.refusal.pending.attempt, each.version) for each in told)

    async def seals(self, limit: int) -> list[Seal]:
        """Take the seals that are due."""
        async with self.turn() as turn:
            return await overdue.seals_due(turn.connection, limit)

    async def seal(self, answers: Sequence[SealAnswer]) -> object:
        """Take seals."""
        by_grant: dict[GrantId, list[Action]] = {}
        for answer in answers:
            by_grant.setdefault(answer.grant, []).append(_sealing(answer))
        async with self.turn() as turn:
            await self._changes.take(turn, {grant: chained(each) for grant, each in by_grant.items()})
            await overdue.note_clear(turn.connection, answers)
        return None

    async def watch(self, heard_seconds: float) -> object:
        """Let time pass."""
        async with self.turn() as turn:
            await self._waits.follow(turn, heard_seconds)
        return None

    async def override(self, grant: GrantId, node: NodeId) -> object:
        """Take a person's word."""
        async with self.turn() as turn:
            await self._changes.override(turn, grant, node, WORD)
        return None

    async def leases(self, found: Sequence[Lease]) -> object:
        """Hold leases against the ledger."""
        async with self.turn() as turn:
            live = await renewal.live_leases(turn.connection)
            ghosts = await renewal.ghosts(turn.connection, found)
            return _sorted(live), _sorted(ghosts), _sorted(await renewal.stop_when_behind(turn.connection, found))

    async def unanswered(self) -> object:
        """Return the facts to say again."""
        async with self.turn() as turn:
            return sorted(await overdue.unanswered(turn.connection, quiet_seconds=QUIET_SECONDS))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator["Recorded"]:
        """Open a turn at the test's moment, and keep what it says."""
        self.freed = []
        async with transaction(self._pool) as connection:
            await connection.execute("SELECT set_config('clock.now', $1, true)", self._now().isoformat())
            turn = Recorded("placement", self._now(), connection)
            yield turn
            await turn.flush()
        turn.finish()
        self.said, self.again = turn.said, turn.repeated

    def _free(self, leases: Sequence[Lease]) -> None:
        self.freed += leases


class Recorded(PostgresTurn):
    """A turn that tells what it said."""

    def __init__(self, source: str, now: datetime, connection: Connection) -> None:
        super().__init__(source, now, connection, quiet_seconds=0)
        self.said: list[Envelope] = []
        self.repeated: list[UUID] = []

    async def say_again(self, ids: Any, *, asks: bool = False) -> int:
        """Note which facts."""
        self.repeated += ids
        return await super().say_again(ids, asks=asks)

    def finish(self) -> None:
        """Note what was said."""
        self.said = [envelope for envelope, _ in self._facts]
        super().finish()


def _sorted(leases: Sequence[Lease]) -> list[Lease]:
    return sorted(leases, key=lambda lease: (lease.device, lease.grant, lease.epoch))


def _nothing() -> None:
    """Wake nobody."""
