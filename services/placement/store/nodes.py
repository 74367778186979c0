"""When nodes were heard and under which boots; compared with the database's clock only."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from libs.pg.pool import Connection
from schemas.ids import DeviceId, GrantId, NodeId
from schemas.runtime import ObservationReported
from schemas.workload import GrantedDevice
from services.placement.core.claims import NodeDevice
from services.placement.core.silence import Heard, Silence


@dataclass(frozen=True, slots=True)
class Boots:
    """What registering boots found: boots that other incarnations had made known, and boots that ended by it."""

    known: frozenset[tuple[NodeId, str]] = frozenset()
    ended: Mapping[NodeId, frozenset[str]] = field(default_factory=dict)


async def heard(connection: Connection, reports: Sequence[ObservationReported]) -> None:
    """Note that nodes reported; of one node the last counts. A report of a boot that has ended says nothing.

    A report comes over a stream and may be old, so it never makes a boot known nor ends one (R6).
    """
    newest = {report.node: report for report in sorted(reports, key=lambda report: report.sequence)}
    nodes, boots = list(newest), [report.boot for report in newest.values()]
    blind = [report.blind is not None for report in newest.values()]
    await connection.execute(_HEARD, nodes, boots, blind)
    unmanaged = [use.device for report in newest.values() for use in report.unmanaged]
    await connection.execute(_UNMANAGED, nodes, unmanaged)


async def register_boots(connection: Connection, asked: Sequence[tuple[NodeId, str, str]]) -> Boots:
    """Take the boots (node, boot, the agent's incarnation) of agents that ask right now; later ones in the list win.

    A boot that was not known ends all others of its node. The node's row is locked meanwhile.
    """
    newest = {node: (boot, incarnation) for node, boot, incarnation in asked}
    nodes, boots = list(newest), [boot for boot, _ in newest.values()]
    incarnations = [incarnation for _, incarnation in newest.values()]
    await connection.execute(_LOCK_NODES, nodes)
    known = await connection.fetch(_KNOWN_BOOTS, nodes, boots, incarnations)
    fresh = [row["node"] for row in await connection.fetch(_NEW_BOOTS, nodes, boots, incarnations)]
    ended: dict[NodeId, set[str]] = {}
    for row in await connection.fetch(_END_BOOTS, fresh, [newest[node][0] for node in fresh]):
        ended.setdefault(NodeId(row["node"]), set()).add(row["boot"])
    return Boots(
        frozenset((NodeId(row["node"]), row["boot"]) for row in known),
        {node: frozenset(boots) for node, boots in ended.items()},
    )


async def unknown_boots(connection: Connection, asked: Collection[tuple[NodeId, str]]) -> set[tuple[NodeId, str]]:
    """Return those (node, boot) that the ledger has not seen."""
    rows = await connection.fetch(_UNKNOWN_BOOTS, [node for node, _ in asked], [boot for _, boot in asked])
    return {(NodeId(row["node"]), row["boot"]) for row in rows}


async def ended_boots(connection: Connection, nodes: Collection[NodeId]) -> dict[NodeId, set[str]]:
    """Return the boots of these nodes that have ended."""
    found: dict[NodeId, set[str]] = {node: set() for node in nodes}
    for row in await connection.fetch(_ENDED_BOOTS, list(nodes)):
        found[row["node"]].add(row["boot"])
    return found


async def claimed_under(connection: Connection, ended: Mapping[NodeId, Collection[str]]) -> set[GrantId]:
    """Return the grants with a part that was claimed under one of these boots and is not released."""
    pairs = [(node, boot) for node, boots in ended.items() for boot in boots]
    rows = await connection.fetch(_CLAIMED_UNDER, [node for node, _ in pairs], [boot for _, boot in pairs])
    return {row["grant_id"] for row in rows}


async def devices(connection: Connection, ids: Collection[DeviceId], *, lock: bool) -> dict[DeviceId, NodeDevice]:
    """Return devices with the grants that hold them; locked in the order of their ids when they may be rebound."""
    if lock:
        await connection.execute(_LOCK_DEVICES, list(ids))
    return {
        row["device"]: NodeDevice(
            GrantedDevice(device=row["device"], index=row["index"], ordinal=row["ordinal"]),
            row["node"],
            row["gpu_class"],
            row["owner"],
            row["grant_id"],
        )
        for row in await connection.fetch(_DEVICES, list(ids))
    }


async def listening(connection: Connection) -> list[Heard]:
    """Return when each node was last heard."""
    rows = await connection.fetch(_LISTENING)
    return [Heard(row["node"], row["cluster"], row["heard_at"], row["suspect_since"] is not None) for row in rows]


async def mark_silence(connection: Connection, silence: Silence) -> None:
    """Mark the nodes that fell silent, and unmark those that are heard again."""
    await connection.execute(_SUSPECT, list(silence.suspect))
    await connection.execute(_FRESH, list(silence.fresh))


async def held_on(connection: Connection, nodes: Collection[NodeId]) -> dict[NodeId, list[GrantId]]:
    """Return the grants that are live on each of these nodes."""
    found: dict[NodeId, list[GrantId]] = {node: [] for node in nodes}
    for row in await connection.fetch(_HELD_ON, list(nodes)):
        found[row["node"]].append(row["grant_id"])
    return found


_HEARD = """
WITH quiet AS (
    SELECT n.node, r.blind
    FROM nodes n JOIN unnest($1::text[], $2::text[], $3::boolean[]) AS r(node, boot, blind) ON n.node = r.node
    WHERE NOT EXISTS (SELECT FROM boots b WHERE b.node = r.node AND b.boot = r.boot AND b.ended_at IS NOT NULL)
    ORDER BY n.node
    FOR UPDATE OF n
)
UPDATE nodes n SET heard_at = now(), blind = q.blind FROM quiet q WHERE n.node = q.node
"""
_UNMANAGED = """
UPDATE devices SET unmanaged = NOT unmanaged
WHERE node = ANY($1::text[]) AND unmanaged <> (device = ANY($2::text[]))
"""
_LOCK_NODES = "SELECT node FROM nodes WHERE node = ANY($1::text[]) ORDER BY node FOR UPDATE"
_KNOWN_BOOTS = """
SELECT b.node, b.boot
FROM boots b JOIN unnest($1::text[], $2::text[], $3::text[]) AS a(node, boot, incarnation)
     ON b.node = a.node AND b.boot = a.boot
WHERE b.incarnation <> a.incarnation
"""
_NEW_BOOTS = """
INSERT INTO boots (node, boot, incarnation)
SELECT node, boot, incarnation
FROM unnest($1::text[], $2::text[], $3::text[]) AS a(node, boot, incarnation)
ORDER BY node
ON CONFLICT DO NOTHING
RETURNING node
"""
_END_BOOTS = """
UPDATE boots b SET ended_at = now()
FROM unnest($1::text[], $2::text[]) AS a(node, boot)
WHERE b.node = a.node AND b.boot <> a.boot AND b.ended_at IS NULL
RETURNING b.node, b.boot
"""
_UNKNOWN_BOOTS = """
SELECT a.node, a.boot
FROM unnest($1::text[], $2::text[]) AS a(node, boot)
WHERE NOT EXISTS (SELECT FROM boots b WHERE b.node = a.node AND b.boot = a.boot)
"""
_ENDED_BOOTS = "SELECT node, boot FROM boots WHERE node = ANY($1::text[]) AND ended_at IS NOT NULL"
_CLAIMED_UNDER = """
SELECT DISTINCT p.grant_id
FROM parts p JOIN unnest($1::text[], $2::text[]) AS e(node, boot) ON p.node = e.node AND p.boot = e.boot
WHERE p.state IN ('Claimed', 'Revoking')
"""
_LOCK_DEVICES = "SELECT device FROM devices WHERE device = ANY($1::text[]) ORDER BY device FOR UPDATE"
_DEVICES = """
SELECT d.device, d.node, d.index, d.ordinal, d.gpu_class, d.owner, l.grant_id
FROM devices d LEFT JOIN lines l ON l.device = d.device AND l.live
WHERE d.device = ANY($1::text[]) AND NOT d.retired
"""
_LISTENING = "SELECT node, cluster, heard_at, suspect_since FROM nodes WHERE NOT retired"
_SUSPECT = "UPDATE nodes SET suspect_since = now() WHERE node = ANY($1::text[]) AND suspect_since IS NULL"
_FRESH = "UPDATE nodes SET suspect_since = NULL WHERE node = ANY($1::text[])"
_HELD_ON = "SELECT node, grant_id FROM parts WHERE node = ANY($1::text[]) AND state <> 'Released'"
