"""What inventory says of the fleet, as rows; and the view that a cycle decides on."""

from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import starmap
from typing import Final

import orjson

from libs.pg.pool import Connection, Record
from schemas.fleet import Mark, MarkEffect, NodeInfo
from schemas.ids import ClusterId, DeviceId, GrantId, NodeId
from schemas.workload import GrantedDevice
from services.placement.core.view import FleetView, Hold, NodeRow, StockRow, build
from services.placement.store import holds

DEVICES_REMEMBERED: Final = 1 << 17  # about 50 MB when there are so many

Flag = tuple[NodeId, int, bool, bool]  # node, version, stale, retired


async def declare_clusters(
    connection: Connection, clusters: Sequence[tuple[ClusterId, str, str, tuple[str, ...], int]]
) -> None:
    """Note destinations: id, name, backend, levels from the widest, version. Older versions change nothing."""
    rows = [(cluster, name, backend, list(levels), version) for cluster, name, backend, levels, version in clusters]
    await connection.executemany(_CLUSTER, rows)


async def declare_nodes(connection: Connection, infos: Sequence[tuple[NodeInfo, int]]) -> None:
    """Note nodes whole, with their devices (info, version). Of one node the highest version stands."""
    newest = {info.node: (info, version) for info, version in sorted(infos, key=lambda item: item[1])}
    nodes = [info for info, _ in newest.values()]
    rows = await connection.fetch(
        _NODES,
        [info.node for info in nodes],
        [info.owned_by for info in nodes],
        [info.name for info in nodes],
        [orjson.dumps(info.place).decode() for info in nodes],
        [info.cpu_milli for info in nodes],
        [info.memory_mib for info in nodes],
        [_marks_text(info.marks) for info in nodes],
        [any(mark.effect is MarkEffect.DRAIN for mark in info.marks) for info in nodes],
        [info.reported for info in nodes],
        [info.stale for info in nodes],
        [version for _, version in newest.values()],
        [info.owner_epoch for info in nodes],
    )
    taken = {row["node"] for row in rows}
    await _declare_devices(connection, [info for info in nodes if info.node in taken])
    await holds.outlive(connection, taken)


async def flag_nodes(connection: Connection, flags: Sequence[Flag]) -> None:
    """Note that nodes went stale, freshened or were retired. Of one node the highest version stands."""
    newest = {flag[0]: flag for flag in sorted(flags, key=lambda flag: flag[1])}
    columns = list(zip(*newest.values(), strict=True))
    await connection.execute(_FLAGS, *columns)


async def drained_grants(connection: Connection) -> dict[GrantId, str]:
    """Return the grants that are to end because a node of theirs is marked to be drained, with the mark's reason."""
    rows = await connection.fetch(_DRAINED)
    return {row["grant_id"]: f"{row['name']}: {_first(row['marks']).reason}" for row in rows}


async def load_view(connection: Connection) -> FleetView:
    """Return the fleet as the ledger knows it now."""
    levels = {row["cluster"]: tuple(row["levels"]) for row in await connection.fetch(_LEVELS)}
    nodes = [_node(row) for row in await connection.fetch(_VIEW_NODES)]
    known = {row.node for row in nodes}  # each statement sees its own moment: a node may come between the two
    stock = [_stock(row) for row in await connection.fetch(_VIEW_STOCK) if row["node"] in known]
    return build(levels, nodes, stock)


async def _declare_devices(connection: Connection, nodes: Collection[NodeInfo]) -> None:
    devices = [(info, device) for info in nodes for device in info.devices]
    await connection.execute(_RETIRE, [info.node for info in nodes], [device.device for _, device in devices])
    await connection.execute(
        _DEVICES,
        [device.device for _, device in devices],
        [info.node for info, _ in devices],
        [device.index for _, device in devices],
        [device.uuid for _, device in devices],
        [device.model for _, device in devices],
        [device.memory_mib for _, device in devices],
        [device.gpu_class for _, device in devices],
        [info.owned_by for info, _ in devices],
        [info.owner_epoch for info, _ in devices],
    )


def _marks_text(marks: Sequence[Mark]) -> str:
    return "[" + ",".join(mark.model_dump_json() for mark in marks) + "]"


def _first(marks: str) -> Mark:
    return Mark.model_validate(orjson.loads(marks)[0])


def _node(row: Record) -> NodeRow:
    return NodeRow(
        node=row["node"],
        name=row["name"],
        cluster=row["cluster"],
        place=orjson.loads(row["place"]),
        cpu_milli=row["cpu_milli"],
        memory_mib=row["memory_mib"],
        cpu_milli_used=row["cpu_milli_used"],
        memory_mib_used=row["memory_mib_used"],
        held=_hold(row),
        owner_epoch=row["owner_epoch"],
    )


def _hold(row: Record) -> Hold | None:
    """The first reason why a node offers nothing; unknown is not free (I7)."""
    if row["marks"] != "[]":
        mark = _first(row["marks"])
        return Hold(mark.owner, mark.reason, mark.since)
    if row["hold"] is not None:
        return Hold(row["held_by"], row["held_for"], row["held_since"])
    return _doubt(row)


def _doubt(row: Record) -> Hold | None:
    """What is not known of the node, or None."""
    if row["escalated_at"] is not None:
        return Hold("placement", "StuckTermination", row["escalated_at"])
    if row["suspect_since"] is not None:
        return Hold("placement", "HeartbeatLost", row["suspect_since"])
    if row["blind"] or not row["told"]:
        return (
            Hold("agent", "NodeBlind", None) if row["blind"] else Hold("placement", "DeviceSuspect", row["stopped_at"])
        )
    if row["stale"]:
        return Hold("inventory", "DestinationStale", row["flagged_at"])
    return None if row["reported"] else Hold("inventory", "not reported yet", None)


def _stock(row: Record) -> StockRow:
    columns = (row["devices"] or (), row["indexes"] or (), row["ordinals"] or ())
    devices = zip(*columns, strict=True)
    return StockRow(row["node"], row["gpu_class"], tuple(starmap(_device, devices)), row["exist"], row["releasing"])


@lru_cache(maxsize=DEVICES_REMEMBERED)
def _device(device: str, index: int, ordinal: int) -> GrantedDevice:
    """Of a view's time most went into making these again; they are values, and hardly ever others."""
    return GrantedDevice(device=DeviceId(device), index=index, ordinal=ordinal)


_CLUSTER = """
INSERT INTO clusters (cluster, name, backend, levels, version) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (cluster) DO UPDATE
SET name = excluded.name, backend = excluded.backend, levels = excluded.levels, version = excluded.version
WHERE clusters.version < excluded.version
"""
_NODES = """
INSERT INTO nodes (node, cluster, name, place, cpu_milli, memory_mib, marks, drained, reported, stale, version,
                   owner_epoch, heard_at)
SELECT node, cluster, name, place::jsonb, cpu_milli, memory_mib, marks::jsonb, drained, reported, stale, version,
       owner_epoch, CASE WHEN reported THEN now() END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::boolean[],
            $9::boolean[], $10::boolean[], $11::bigint[], $12::bigint[])
     AS n(node, cluster, name, place, cpu_milli, memory_mib, marks, drained, reported, stale, version, owner_epoch)
ORDER BY node
ON CONFLICT (node) DO UPDATE
SET cluster = excluded.cluster, name = excluded.name, place = excluded.place, cpu_milli = excluded.cpu_milli,
    memory_mib = excluded.memory_mib, marks = excluded.marks, drained = excluded.drained,
    reported = excluded.reported, version = excluded.version, owner_epoch = excluded.owner_epoch,
    heard_at = coalesce(nodes.heard_at, excluded.heard_at),
    stale = CASE WHEN nodes.flag_version < excluded.version THEN excluded.stale ELSE nodes.stale END,
    retired = nodes.retired AND nodes.flag_version > excluded.version
WHERE nodes.version < excluded.version
RETURNING node
"""
_FLAGS = """
UPDATE nodes n
SET stale = f.stale, retired = f.retired, flag_version = f.version, flagged_at = now()
FROM unnest($1::text[], $2::bigint[], $3::boolean[], $4::boolean[]) AS f(node, version, stale, retired)
WHERE n.node = f.node AND n.flag_version < f.version AND n.version < f.version
"""
_RETIRE = """
UPDATE devices SET retired = true
WHERE node = ANY($1::text[]) AND NOT device = ANY($2::text[]) AND NOT retired
"""
# an owner is newer by its epoch alone (M4)
_DEVICES = """
INSERT INTO devices (device, node, index, uuid, model, memory_mib, gpu_class, owner, owner_epoch)
SELECT device, node, index, uuid, model, memory_mib, gpu_class, owner, owner_epoch
FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[],
            $9::bigint[])
     AS d(device, node, index, uuid, model, memory_mib, gpu_class, owner, owner_epoch)
ORDER BY device
ON CONFLICT (device) DO UPDATE
SET node = excluded.node, index = excluded.index, uuid = excluded.uuid, model = excluded.model,
    memory_mib = excluded.memory_mib, gpu_class = excluded.gpu_class, retired = false,
    owner = CASE WHEN devices.owner_epoch < excluded.owner_epoch THEN excluded.owner ELSE devices.owner END,
    owner_epoch = greatest(devices.owner_epoch, excluded.owner_epoch)
WHERE devices.owner_epoch < excluded.owner_epoch
   OR (devices.node, devices.index, devices.model, devices.memory_mib, devices.gpu_class, devices.retired)
      IS DISTINCT FROM (excluded.node, excluded.index, excluded.model, excluded.memory_mib, excluded.gpu_class, false)
"""
_DRAINED = """
SELECT p.grant_id, n.name, n.marks
FROM nodes n
JOIN parts p ON p.node = n.node AND p.state IN ('Issued', 'Claimed')
JOIN grants g ON g.id = p.grant_id AND g.revoked_at IS NULL
WHERE n.drained
"""
_LEVELS = "SELECT cluster, levels FROM clusters"
_VIEW_NODES = """
SELECT n.node, n.name, n.cluster, n.place, n.cpu_milli, n.memory_mib, n.marks, n.reported, n.stale, n.flagged_at,
       n.suspect_since, n.blind, n.owner_epoch, u.escalated_at, s.stopped_at,
       h.hold, h.owner AS held_by, h.reason AS held_for, h.since AS held_since,
       coalesce(n.told_at >= s.stopped_at, s.stopped_at IS NULL) AS told,
       coalesce(u.cpu_milli, 0)::bigint AS cpu_milli_used, coalesce(u.memory_mib, 0)::bigint AS memory_mib_used
FROM nodes n
CROSS JOIN (SELECT max(since) AS stopped_at FROM stops) s
LEFT JOIN holds h ON h.node = n.node AND h.dropped_at IS NULL
LEFT JOIN (
    SELECT node, sum(cpu_milli) AS cpu_milli, sum(memory_mib) AS memory_mib, min(escalated_at) AS escalated_at
    FROM parts WHERE state <> 'Released' GROUP BY node
) u ON u.node = n.node
WHERE NOT n.retired
"""
# what a move holds is without a grant, too: its node offers nothing meanwhile, and says why
_VIEW_STOCK = """
SELECT d.node, d.gpu_class, count(*) AS exist, count(*) FILTER (WHERE p.state = 'Revoking') AS releasing,
       array_agg(d.device ORDER BY d.index) FILTER (WHERE f.free) AS devices,
       array_agg(d.index ORDER BY d.index) FILTER (WHERE f.free) AS indexes,
       array_agg(d.ordinal ORDER BY d.index) FILTER (WHERE f.free) AS ordinals
FROM devices d
JOIN nodes n ON n.node = d.node AND NOT n.retired
LEFT JOIN lines l ON l.device = d.device AND l.live AND l.hold IS NULL
LEFT JOIN occupied o ON o.device = d.device
CROSS JOIN LATERAL (SELECT l.id IS NULL AND o.device IS NULL AND NOT d.unmanaged AS free) f
LEFT JOIN parts p ON p.grant_id = l.grant_id AND p.node = l.node
WHERE NOT d.retired AND d.gpu_class IS NOT NULL
GROUP BY d.node, d.gpu_class
"""
