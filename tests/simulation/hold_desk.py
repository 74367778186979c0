"""What placement does in a turn about the slots of a node that moves, on the ledger in memory, with the real core."""

from schemas.ids import GrantId, MoveId, NodeId
from schemas.lifecycle import PartState
from schemas.moves import TransferDrop, TransferDropAnswer, TransferHold, TransferHoldAnswer
from services.placement.core.holds import Standing, answered, obstacle
from tests.simulation.ledger import Ledger
from tests.simulation.store import Turn

LedgerTurn = Turn[Ledger]
BEGUN = frozenset({PartState.ISSUED, PartState.CLAIMED})


def take(turn: LedgerTurn, asked: TransferHold) -> TransferHoldAnswer:
    """Keep a node from new work, and take its slots where no grant has one (M1)."""
    found, holds = _look(turn.state, asked.node, asked.move), turn.state.fleet.holds
    if (why := obstacle(asked, found)) is not None:
        return why
    holds.keep(asked, turn.now)
    answer = answered(asked, found)
    if answer.held:
        holds.take(asked.move, [key for key, each in turn.state.fleet.devices.items() if each.node == asked.node])
    return answer


def drop(turn: LedgerTurn, asked: TransferDrop) -> TransferDropAnswer:
    """Give the slots back for good."""
    turn.state.fleet.holds.drop(asked, turn.now)
    return TransferDropAnswer(move=asked.move)


def stopped_grants(ledger: Ledger) -> dict[GrantId, str]:
    """Return the grants that are to end because their node moves, and why it does."""
    held = {node: row for node in ledger.fleet.holds.standing if (row := ledger.fleet.holds.on(node)) and row.stop}
    return {
        grant.id: held[part.node].reason
        for part, grant in (ledger.live_parts() if held else ())
        if part.node in held and part.state in BEGUN and grant.revoked_at is None
    }


def _look(ledger: Ledger, node: NodeId, hold: MoveId) -> Standing:
    entry, standing = ledger.fleet.nodes.get(node), ledger.fleet.holds.standing.get(node)
    grants = {grant for device, (grant, _) in ledger.lines.items() if ledger.fleet.devices[device].node == node}
    return Standing(
        owner=entry.info.owned_by if entry else None,
        owner_epoch=entry.info.owner_epoch if entry else 0,
        dropped=ledger.fleet.holds.is_dropped(hold),
        other=standing if standing != hold else None,
        grants=tuple(sorted(grants)),
    )
