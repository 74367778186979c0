"""A ledger that went back, with one rule left out; see ``mutants``."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from schemas.calls import HoldersAnswer
from schemas.ids import GrantId, JobId
from services.placement.core.grant import Grant
from services.placement.store.attempts import Ended
from services.placement.store.changes import Action, Causes
from tests.simulation.attempt_tables import AttemptTables
from tests.simulation.ledger import TERM, Ledger
from tests.simulation.placement_desk import LedgerTurn, PlacementDesk
from tests.simulation.recovery_tables import RecoveryTables

NOBODY: Final = UUID(int=0)


class GrantsOn(Ledger):
    """A ledger that went back goes on granting, and asks nobody (R12)."""

    def go_back(self, now: datetime) -> None:
        super().go_back(now)
        self.stops = []
        self.recovery.stopped_at = None


class SameTerm(Ledger):
    """A backup that is restored again draws the epochs again that were drawn after its first restore (R12)."""

    def go_back(self, now: datetime) -> None:
        before = self.epochs
        super().go_back(now)
        self.epochs = before + TERM


class TellsInVain(RecoveryTables):
    """What nodes tell that they run is not kept (R12)."""

    def keep(self, answers: Iterable[HoldersAnswer], known: Collection[GrantId]) -> None:
        del answers, known


class StrangersStay(PlacementDesk):
    """What nobody knows is taken up after the lift, and not revoked (R12)."""

    taking_up = False

    def take_up(self, turn: LedgerTurn) -> None:
        self.taking_up = True
        super().take_up(turn)
        self.taking_up = False

    def take(self, turn: LedgerTurn, actions: Mapping[GrantId, Action], because: Causes | None = None) -> None:
        if not self.taking_up:
            super().take(turn, actions, because)


class NothingIsDoubtful(RecoveryTables):
    """What an older ledger holds as not started is taken for that, though its node has not told (R12)."""

    def doubted(self, grant: Grant) -> Grant:
        return grant


class ToldIsBegun(AttemptTables):
    """An attempt that only a node told of counts as a later one, and ends those before it (R12)."""

    def end_earlier(self, jobs: Sequence[JobId]) -> list[Ended]:
        begun = self.rows
        self.rows = {key: replace(row, cause=row.cause or NOBODY) for key, row in begun.items()}
        ended = super().end_earlier(jobs)
        self.rows = {key: replace(row, cause=begun[key].cause) for key, row in self.rows.items()}
        return ended
