"""The view that a cycle decides on, from the ledger in memory; see ``ledger``."""

from collections.abc import Iterator
from datetime import datetime

from schemas.ids import DeviceId, NodeId
from schemas.lifecycle import PartState
from services.placement.core.view import FleetView, Hold, NodeRow, StockRow, build
from tests.simulation.fleet_tables import DeviceEntry, NodeEntry
from tests.simulation.ledger import Ledger


def load_view(ledger: Ledger) -> FleetView:
    """Return the fleet as the ledger knows it now."""
    used, escalated = _used(ledger), _escalated(ledger)
    levels = {cluster: levels for cluster, (_, levels) in ledger.fleet.levels.items()}
    known = {node: entry for node, entry in ledger.fleet.nodes.items() if not entry.retired}
    nodes = [
        _node(entry, used.get(node, (0, 0)), _hold(ledger, entry, escalated.get(node))) for node, entry in known.items()
    ]
    return build(levels, nodes, list(_stock(ledger, known)))


def _used(ledger: Ledger) -> dict[NodeId, tuple[int, int]]:
    used: dict[NodeId, tuple[int, int]] = {}
    for part, grant in ledger.live_parts():
        pending = ledger.attempts.rows[grant.job, grant.attempt].pending
        if pending is None:
            continue  # taken up from its node: how much it may use of the node is not known
        cpu, memory = used.get(part.node, (0, 0))
        cpu += len(part.replicas) * pending.demand.cpu_milli_per_replica
        used[part.node] = (cpu, memory + len(part.replicas) * pending.demand.memory_mib_per_replica)
    return used


def _escalated(ledger: Ledger) -> dict[NodeId, datetime]:
    found: dict[NodeId, datetime] = {}
    for part, _ in ledger.live_parts():
        if part.escalated_at is not None:
            found[part.node] = min(part.escalated_at, found.get(part.node, part.escalated_at))
    return found


def _node(entry: NodeEntry, used: tuple[int, int], held: Hold | None) -> NodeRow:
    info = entry.info
    return NodeRow(
        node=info.node,
        name=info.name,
        cluster=info.owned_by,
        place=info.place,
        cpu_milli=info.cpu_milli,
        memory_mib=info.memory_mib,
        cpu_milli_used=used[0],
        memory_mib_used=used[1],
        held=held,
        owner_epoch=info.owner_epoch,
    )


def _hold(ledger: Ledger, entry: NodeEntry, escalated_at: datetime | None) -> Hold | None:
    """The first reason why a node offers nothing; unknown is not free (I7)."""
    if entry.marks:
        return Hold(entry.marks[0].owner, entry.marks[0].reason, entry.marks[0].since)
    kept = ledger.fleet.holds.on(entry.info.node)
    if kept is not None:
        return Hold(kept.owner, kept.reason, kept.since)
    return _doubt(ledger, entry, escalated_at)


def _doubt(ledger: Ledger, entry: NodeEntry, escalated_at: datetime | None) -> Hold | None:
    """What is not known of the node, or None."""
    if escalated_at is not None:
        return Hold("placement", "StuckTermination", escalated_at)
    if entry.suspect_since is not None:
        return Hold("placement", "HeartbeatLost", entry.suspect_since)
    if entry.blind or not ledger.recovery.has_told(entry.info.node):
        suspect = Hold("placement", "DeviceSuspect", ledger.recovery.stopped_at)
        return Hold("agent", "NodeBlind", None) if entry.blind else suspect
    if entry.stale:
        return Hold("inventory", "DestinationStale", entry.flagged_at)
    return None if entry.info.reported else Hold("inventory", "not reported yet", None)


def _stock(ledger: Ledger, nodes: dict[NodeId, NodeEntry]) -> Iterator[StockRow]:
    found: dict[tuple[NodeId, str], list[tuple[DeviceId, DeviceEntry]]] = {}
    for device, entry in ledger.fleet.devices.items():
        if entry.node in nodes and entry.gpu_class is not None and not entry.retired:
            found.setdefault((entry.node, entry.gpu_class), []).append((device, entry))
    for (node, gpu_class), devices in found.items():
        free = sorted((e.slot.index, e.slot) for device, e in devices if _is_open(ledger, device, e))
        releasing = sum(_is_releasing(ledger, device) for device, _ in devices)
        yield StockRow(node, gpu_class, tuple(slot for _, slot in free), len(devices), releasing)


def _is_open(ledger: Ledger, device: DeviceId, entry: DeviceEntry) -> bool:
    return not entry.unmanaged and device not in ledger.lines and not ledger.recovery.is_occupied(device)


def _is_releasing(ledger: Ledger, device: DeviceId) -> bool:
    grant, node = ledger.lines.get(device, (None, None))
    part = ledger.grants[grant].part(node) if grant and node else None
    return part is not None and part.state is PartState.REVOKING
