"""Gangs that lost a node, with one rule left out; see ``mutants``."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from schemas.ids import GrantId
from services.placement.core.comeback import Comeback
from services.placement.core.grant import Grant
from tests.simulation.attempt_tables import AttemptTables
from tests.simulation.comeback_tables import ComebackTables
from tests.simulation.placement_desk import LedgerTurn, PlacementDesk


class HeldInVain(PlacementDesk):
    """What is held for a gang is given to whoever comes."""

    def comebacks(self, turn: LedgerTurn) -> list[Comeback]:
        del turn
        return []


class HeldForEver(ComebackTables):
    """What is held for a gang is held for longer than its job wishes."""

    def end_late(self, now: datetime) -> None:
        del now

    def standing(self, grants: Mapping[GrantId, Grant], attempts: AttemptTables, now: datetime) -> list[Comeback]:
        return super().standing(grants, attempts, now - timedelta(hours=1))
