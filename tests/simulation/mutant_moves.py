"""Moves of nodes with one rule left out; see ``mutants``."""

from collections.abc import Sequence
from dataclasses import replace

from schemas.calls import Claim, ClaimAnswer
from schemas.fleet import MoveState
from schemas.ids import NodeId
from services.inventory.core.view import Move
from services.placement.core.decide import Decision, Placement
from services.placement.core.grant import Grant
from tests.simulation.fleet_tables import FleetTables
from tests.simulation.hold_tables import HoldTables
from tests.simulation.ledger import Ledger
from tests.simulation.moving import Moves, Settle
from tests.simulation.placement_desk import LedgerTurn, PlacementDesk


class HoldsUnseen(Ledger):
    """A grant takes what a move holds (M1) [D3]."""

    def collides(self, new: Grant) -> bool:
        holds = self.fleet.holds
        self.fleet.holds = HoldTables()
        found = super().collides(new)
        self.fleet.holds = holds
        return found


class NobodyIsTold(HoldTables):
    """Neither the cycle nor the wall looks whether a move keeps a node."""

    def on(self, node: NodeId) -> None:
        """Return no hold."""
        del node


class OutlivedHoldsStay(HoldTables):
    """A hold is not dropped when its owner epoch has passed (M4) [D7]."""

    def outlive(self, node: object, owner_epoch: int) -> None:
        del node, owner_epoch


class OwnersByName(FleetTables):
    """The wall compares owners by their names and not by their epochs (M4)."""

    def is_as_decided(self, placement: Placement) -> bool:
        nodes = [
            replace(part.node, owner_epoch=max(self._owner_epochs(part.node.node), default=0))
            for part in placement.parts
        ]
        parts = tuple(replace(part, node=node) for part, node in zip(placement.parts, nodes, strict=True))
        return super().is_as_decided(replace(placement, parts=parts))

    def _owner_epochs(self, node: object) -> list[int]:
        return [entry.owner_epoch for entry in self.devices.values() if entry.node == node]


class ClaimsByName(PlacementDesk):
    """Nor does a claim look at owner epochs (M5); and a replica decides by those that it knew at first."""

    def decide(self, turn: LedgerTurn) -> Decision | None:
        found = super().decide(turn)
        return found and replace(found, placements=tuple(map(_of_first_owners, found.placements)))

    def claim(self, turn: LedgerTurn, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        devices, fleet = turn.state.fleet.devices, turn.state.fleet
        fleet.devices = dict(devices)
        for claim in claims:
            grant = turn.state.grants.get(claim.grant)
            part = grant.part(claim.node) if grant else None
            for device in claim.devices if part else ():
                if device in devices and part:
                    fleet.devices[device] = replace(devices[device], owner_epoch=part.owner_epoch)
        answers = super().claim(turn, claims)
        for key, entry in devices.items():
            fleet.devices[key] = replace(fleet.devices[key], owner_epoch=entry.owner_epoch)
        return answers


def _of_first_owners(placement: Placement) -> Placement:
    parts = (replace(part, node=replace(part.node, owner_epoch=1)) for part in placement.parts)
    return replace(placement, parts=tuple(parts))


class AnyDestination(PlacementDesk):
    """A claim does not look through which destination its start comes (M5)."""

    def claim(self, turn: LedgerTurn, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        grants = turn.state.grants
        known = [
            claim.model_copy(update={"cluster": grants[claim.grant].cluster}) if claim.grant in grants else claim
            for claim in claims
        ]
        return super().claim(turn, known)


class MarksUnasked(Moves):
    """What is asked to be marked off is taken for acknowledged (M2) [D4]."""

    def mark(self, move: Move, settle: Settle) -> None:
        if move.info.state is MoveState.HELD:
            settle(None)
        else:
            super().mark(move, settle)


class LooksUnasked(Moves):
    """Nobody looks whether a node is clear (M2) [D5]."""

    def look(self, move: Move, settle: Settle) -> None:
        del move
        settle(None)


class MarksOnce(Moves):
    """After an older inventory came back, nodes are not told again whose they are."""

    def mark_again(self) -> bool:
        return False
