"""A ledger that went back, with one rule left out; see ``mutants``."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from schemas.calls import HoldersAnswer
from schemas.ids import GrantId
from services.placement.core.grant import Grant
from services.placement.store.changes import Action, Causes
from tests.simulation.ledger import Ledger
from tests.simulation.placement_desk import LedgerTurn, PlacementDesk
from tests.simulation.recovery_tables import RecoveryTables


class GrantsOn(Ledger):
    """A ledger that went back goes on granting, and asks nobody (R12)."""

    def go_back(self, now: datetime) -> None:
        super().go_back(now)
        self.stops = []
        self.recovery.stopped_at = None


class TellsInVain(RecoveryTables):
    """What nodes tell that they run is not kept (R12)."""

    def keep(self, answers: Iterable[HoldersAnswer], grants: Mapping[GrantId, Grant]) -> None:
        del answers, grants


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
