"""I8 of what is held for gangs that lost a node: for their time only, and nobody behind them is given any of it."""

from datetime import datetime, timedelta

from services.placement.core.comeback import Comeback, Room
from services.placement.core.decide import Decision, Placement
from services.placement.core.view import FleetView
from tests.simulation.fleet_view import load_view
from tests.simulation.ledger import Ledger
from tests.simulation.store import BreachError


def check_times(ledger: Ledger, now: datetime) -> None:
    """Check that what is held is for a grant that ended, and no longer than is wished. Raises BreachError."""
    for hold in ledger.comebacks.standing(ledger.grants, ledger.attempts, now):
        row = ledger.comebacks.rows[hold.job]
        ended = ledger.grants[row.grant].revoked_at
        if ended is None or hold.until > ended + timedelta(seconds=row.seconds) or hold.until <= now:
            raise BreachError(f"I8: at {now} room is held for {hold.name} until {hold.until}: it ended at {ended}")


def check_decision(ledger: Ledger, decision: Decision, now: datetime) -> None:
    """Check that nobody was placed on what is held for a gang before him in the order. Raises BreachError."""
    rows = {job: row for job, row in ledger.comebacks.rows.items() if row.until > now}
    placed = {each.pending.job for each in decision.placements}
    if not rows.keys() - placed or not decision.placements:
        return
    view = load_view(ledger)
    for hold in ledger.comebacks.standing(ledger.grants, ledger.attempts, now):
        for room in hold.rooms if hold.job not in placed else ():
            _check_room(hold, room, view, decision)


def _check_room(hold: Comeback, room: Room, view: FleetView, decision: Decision) -> None:
    of_class = [each for each in decision.placements if each.pending.gpu_class == hold.gpu_class]
    ahead = sum(_devices(each, room) for each in of_class if not _is_behind(each, hold))
    taken = sum(_devices(each, room) for each in of_class if _is_behind(each, hold))
    home = [at for at, row in enumerate(view.nodes) if (row.node, row.cluster) == (room.node, hold.cluster)]
    free = sum(int(view.stock[hold.gpu_class].free[at]) for at in home)
    if home and taken > max(0, free - ahead - room.devices):
        raise BreachError(f"I8: {taken} of {free} on {room.node} go to others; {room.devices} are held for {hold.name}")


def _is_behind(placement: Placement, hold: Comeback) -> bool:
    gang = placement.pending
    return (-gang.priority, gang.queued_at, gang.job) > (-hold.priority, hold.queued_at, hold.job)


def _devices(placement: Placement, room: Room) -> int:
    return sum(len(slot.devices) for part in placement.parts if part.node.node == room.node for slot in part.replicas)
