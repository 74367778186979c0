"""When nodes were heard and under which boots; compared with the database's clock only."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from libs.pg.pool import Connection
from schemas.calls import Hello
from schemas.ids import DeviceId, GrantId, NodeId
from schemas.runtime import ObservationReported
from schemas.workload import GrantedDevice
from services.placement.core.claims import NodeDevice
from services.placement.core.silence import Heard, Silence
from services.placement.store.drift import hold


@dataclass(frozen=True, slots=True)
class Boots:
    """What hellos found: boots that other incarnations had made known, boots that ended by it, and those not taken.

    ``refused`` has the number to ask again with: how many boots of the node the ledger knows.
    """

    known: frozenset[tuple[NodeId, str]] = frozenset()
    ended: Mapping[NodeId, frozenset[str]] = field(default_factory=dict)
    refused: Mapping[NodeId, int] = field(default_factory=dict)


async def heard(connection: Connection, reports: Sequence[ObservationReported]) -> None:
    """Note that nodes reported; of one node the last counts. A report of a boot that has ended says nothing.

    A report comes over a stream and may be old, so it never makes a boot known nor ends one (R6).
    """
    newest = {report.node: report for report in sorted(reports, key=lambda report: report.sequence)}
    nodes, boots = list(newest), [report.boot for report in newest.values()]
    blind = [report.blind.message if report.blind else None for report in newest.values()]
    taken = {row["node"] for row in await connection.fetch(_HEARD, nodes, boots, blind)}
    named = [(node, each.grant, each.instance) for node in taken for each in newest[node].holders]
    await hold(connection, taken, named)
    uses = [use for report in newest.values() for use in report.unmanaged]
    users = [f"process {use.pid} ({use.command})" for use in uses]
    await connection.execute(_UNMANAGED, nodes, [use.device for use in uses], users)


async def register_boots(connection: Connection, hellos: Sequence[Hello]) -> Boots:
    """Take the boots of agents that say hello; of one node the last in the list counts.

    A boot that was not known ends all others of its node, and only who has heard how many those are may say so: boots
    have no order, and a hello that comes late must not end the present boot. The node's row is locked meanwhile.
    """
    newest = {hello.node: hello for hello in hellos}
    nodes, boots = list(newest), [hello.boot for hello in newest.values()]
    incarnations = [hello.incarnation for hello in newest.values()]
    await lock(connection, nodes)
    rows = await connection.fetch(_STANDING, nodes, boots, incarnations)
    new = {row["node"]: row["count"] for row in rows if not row["taken"]}
    fresh = [hello for node, hello in newest.items() if node in new and hello.boots == new[node]]
    ended = await _take_boots(connection, fresh)
    return Boots(
        frozenset((NodeId(row["node"]), newest[row["node"]].boot) for row in rows if row["known"]),
        ended,
        {node: count for node, count in new.items() if newest[node] not in fresh},
    )


async def lock(connection: Connection, nodes: Collection[NodeId]) -> None:
    """Lock nodes in the order of their ids: who changes several any other way waits for a replica that waits for it."""
    await connection.execute(_LOCK_NODES, list(nodes))


async def note_boots(connection: Connection, boots: Collection[tuple[NodeId, str]]) -> None:
    """Make boots known that claims name. A claim may come late, so it ends no other boot."""
    await connection.execute(_NOTE_BOOTS, [node for node, _ in boots], [boot for _, boot in boots])


async def _take_boots(connection: Connection, hellos: Sequence[Hello]) -> dict[NodeId, frozenset[str]]:
    nodes, boots = [hello.node for hello in hellos], [hello.boot for hello in hellos]
    await connection.execute(_TAKE_BOOTS, nodes, boots, [hello.incarnation for hello in hellos])
    ended: dict[NodeId, set[str]] = {}
    for row in await connection.fetch(_END_BOOTS, nodes, boots):
        ended.setdefault(NodeId(row["node"]), set()).add(row["boot"])
    return {node: frozenset(found) for node, found in ended.items()}


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
            row["owner_epoch"],
            row["occupied"],
        )
        for row in await connection.fetch(_DEVICES, list(ids))
    }


async def listening(connection: Connection) -> list[Heard]:
    """Return when each node was last heard."""
    rows = await connection.fetch(_LISTENING)
    return [Heard(row["node"], row["cluster"], row["heard_at"], row["suspect_since"] is not None) for row in rows]


async def mark_silence(connection: Connection, silence: Silence) -> None:
    """Mark the nodes that fell silent, and unmark those that are heard again."""
    await lock(connection, [*silence.suspect, *silence.fresh])
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
    FROM nodes n JOIN unnest($1::text[], $2::text[], $3::text[]) AS r(node, boot, blind) ON n.node = r.node
    WHERE NOT EXISTS (SELECT FROM boots b WHERE b.node = r.node AND b.boot = r.boot AND b.ended_at IS NOT NULL)
    ORDER BY n.node
    FOR NO KEY UPDATE OF n
)
UPDATE nodes n
SET heard_at = now(), blind = q.blind IS NOT NULL, blind_why = q.blind,
    blind_since = CASE WHEN q.blind IS NOT NULL THEN coalesce(n.blind_since, now()) END
FROM quiet q WHERE n.node = q.node
RETURNING n.node
"""
_UNMANAGED = """
UPDATE devices d
SET unmanaged = NOT d.unmanaged, unmanaged_since = CASE WHEN NOT d.unmanaged THEN now() END,
    unmanaged_by = (SELECT min(u.used_by) FROM unnest($2::text[], $3::text[]) AS u(device, used_by)
                    WHERE u.device = d.device)
WHERE d.node = ANY($1::text[]) AND d.unmanaged <> (d.device = ANY($2::text[]))
"""
_LOCK_NODES = "SELECT node FROM nodes WHERE node = ANY($1::text[]) ORDER BY node FOR NO KEY UPDATE"
# count: no number from before the ledger went back is ever told again
# taken: an agent said hello in this boot, or it has ended; known: to another incarnation of the agent, or by a claim
_STANDING = """
SELECT a.node,
       count(b.boot) + coalesce((SELECT extract(epoch FROM max(since)) * 1000000 FROM stops), 0)::bigint AS count,
       coalesce(bool_or(b.boot = a.boot AND (b.incarnation <> '' OR b.ended_at IS NOT NULL)), false) AS taken,
       coalesce(bool_or(b.boot = a.boot AND b.incarnation <> a.incarnation), false) AS known
FROM unnest($1::text[], $2::text[], $3::text[]) AS a(node, boot, incarnation)
LEFT JOIN boots b ON b.node = a.node
GROUP BY a.node
"""
_TAKE_BOOTS = """
INSERT INTO boots (node, boot, incarnation)
SELECT node, boot, incarnation
FROM unnest($1::text[], $2::text[], $3::text[]) AS a(node, boot, incarnation)
ORDER BY node
ON CONFLICT (node, boot) DO UPDATE SET incarnation = excluded.incarnation
"""
_NOTE_BOOTS = """
INSERT INTO boots (node, boot, incarnation)
SELECT node, boot, '' FROM unnest($1::text[], $2::text[]) AS a(node, boot) ORDER BY node, boot
ON CONFLICT DO NOTHING
"""
_END_BOOTS = """
UPDATE boots b SET ended_at = now()
FROM unnest($1::text[], $2::text[]) AS a(node, boot)
WHERE b.node = a.node AND b.boot <> a.boot AND b.ended_at IS NULL
RETURNING b.node, b.boot
"""
_ENDED_BOOTS = "SELECT node, boot FROM boots WHERE node = ANY($1::text[]) AND ended_at IS NOT NULL"
_CLAIMED_UNDER = """
SELECT DISTINCT p.grant_id
FROM parts p JOIN unnest($1::text[], $2::text[]) AS e(node, boot) ON p.node = e.node AND p.boot = e.boot
WHERE p.state IN ('Claimed', 'Revoking')
"""
_LOCK_DEVICES = "SELECT device FROM devices WHERE device = ANY($1::text[]) ORDER BY device FOR UPDATE"
_DEVICES = """
SELECT d.device, d.node, d.index, d.ordinal, d.gpu_class, d.owner, d.owner_epoch,
       coalesce(l.grant_id, l.hold) AS grant_id, o.device IS NOT NULL AS occupied
FROM devices d
LEFT JOIN lines l ON l.device = d.device AND l.live
LEFT JOIN occupied o ON o.device = d.device
WHERE d.device = ANY($1::text[]) AND NOT d.retired
"""
_LISTENING = "SELECT node, cluster, heard_at, suspect_since FROM nodes WHERE NOT retired"
_SUSPECT = "UPDATE nodes SET suspect_since = now() WHERE node = ANY($1::text[]) AND suspect_since IS NULL"
_FRESH = "UPDATE nodes SET suspect_since = NULL WHERE node = ANY($1::text[])"
_HELD_ON = "SELECT node, grant_id FROM parts WHERE node = ANY($1::text[]) AND state <> 'Released'"
