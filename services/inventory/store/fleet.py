"""Inventory's memory in Postgres. A cluster's row is the lock: its holder alone changes the cluster or its nodes."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from asyncpg import Record
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from libs.pg.pool import Connection
from schemas.fleet import Mark, NodeInfo
from schemas.ids import ClusterId, DrainId, NodeId
from schemas.runtime import ObservedDevice
from schemas.workload import GrantIssued, GrantReleased
from services.inventory.core import Beat, Cluster, GpuClass, Hold, Node, Policy, Standing, Stock, View
from services.inventory.store import moves

ENSURE: Final = "INSERT INTO clusters (cluster) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING"
# waits for whoever is about to name a cluster: ENSURE takes a lock that this one does not suffer
LOCK_ALL: Final = "LOCK TABLE clusters IN SHARE ROW EXCLUSIVE MODE"
CLUSTERS: Final = """
    SELECT cluster, name, backend, levels, generation, version FROM clusters
    WHERE cluster = ANY($1) ORDER BY cluster FOR UPDATE
"""
DECLARED: Final = "SELECT cluster FROM clusters WHERE generation > 0"
ALL_CLUSTERS: Final = "SELECT cluster FROM clusters"
CLASSES: Final = "SELECT name, model, generation FROM classes"
NODES: Final = """
    SELECT node, cluster, name, standing, place, cpu_milli, memory_mib, devices, reported, machine_cpu_milli,
           machine_memory_mib, incarnation, sequence, heard_at, stale, left_out_at, retired, version, said,
           owner, owner_name, owner_epoch, moves
    FROM nodes WHERE node = ANY($1) OR cluster = ANY($2)
"""
# with a cluster whole come all marks that stand: its document may name nodes that are only known by their mark
MARKS: Final = """
    SELECT drain, node, version, mark FROM marks WHERE node = ANY($1) OR ($2 AND mark IS NOT NULL)
"""
GRANTED: Final = "SELECT DISTINCT node FROM grants WHERE live AND node = ANY($1)"
LATE: Final = """
    SELECT node, cluster FROM nodes n
    WHERE (NOT stale AND NOT retired AND heard_at <= $1)
       OR (standing = 'left_out' AND NOT retired AND left_out_at <= $2
           AND NOT EXISTS (SELECT FROM moves m WHERE m.open AND m.node = n.node)
           AND NOT EXISTS (SELECT FROM grants g WHERE g.live AND g.node = n.node))
    LIMIT 5000
"""
SAVE_CLUSTERS: Final = """
    UPDATE clusters c
    SET name = s.name, backend = s.backend, levels = ARRAY(SELECT jsonb_array_elements_text(s.levels)),
        generation = s.generation, version = s.version
    FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[], $5::bigint[], $6::bigint[])
         AS s(cluster, name, backend, levels, generation, version)
    WHERE c.cluster = s.cluster
"""
SAVE_CLASSES: Final = """
    INSERT INTO classes (name, model, generation) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
    ON CONFLICT (name) DO UPDATE SET model = excluded.model, generation = excluded.generation
"""
SAVE_NODES: Final = """
    INSERT INTO nodes (node, cluster, name, standing, place, cpu_milli, memory_mib, devices, reported,
                       machine_cpu_milli, machine_memory_mib, incarnation, sequence, heard_at, stale, left_out_at,
                       retired, version, said, owner, owner_name, owner_epoch, moves)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::bigint[], $7::bigint[],
                         $8::jsonb[], $9::bool[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[],
                         $14::timestamptz[], $15::bool[], $16::timestamptz[], $17::bool[], $18::bigint[], $19::jsonb[],
                         $20::text[], $21::text[], $22::bigint[], $23::int[])
    ON CONFLICT (node) DO UPDATE
    SET standing = excluded.standing, place = excluded.place, cpu_milli = excluded.cpu_milli,
        memory_mib = excluded.memory_mib, devices = excluded.devices, reported = excluded.reported,
        machine_cpu_milli = excluded.machine_cpu_milli, machine_memory_mib = excluded.machine_memory_mib,
        incarnation = excluded.incarnation, sequence = excluded.sequence, heard_at = excluded.heard_at,
        stale = excluded.stale, left_out_at = excluded.left_out_at, retired = excluded.retired,
        version = excluded.version, said = excluded.said, owner = excluded.owner, owner_name = excluded.owner_name,
        owner_epoch = excluded.owner_epoch, moves = excluded.moves
"""
SAVE_BEATS: Final = """
    UPDATE nodes n SET incarnation = b.incarnation, sequence = b.sequence, heard_at = b.heard_at
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[]) AS b(node, incarnation, sequence, heard_at)
    WHERE n.node = b.node
"""
SAVE_MARKS: Final = """
    INSERT INTO marks (drain, node, version, mark)
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::jsonb[])
    ON CONFLICT (drain) DO UPDATE SET version = excluded.version, mark = excluded.mark
    WHERE marks.version < excluded.version
"""
# issue and release are each heard once: whichever comes second ends the row
ISSUED: Final = """
    WITH issued AS (
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) AS i(grant_id, node, gpu_class, devices)
    ), over AS (
        DELETE FROM grants g USING issued i
        WHERE g.grant_id = i.grant_id AND g.node = i.node AND NOT g.live RETURNING g.grant_id, g.node
    )
    INSERT INTO grants (grant_id, node, gpu_class, devices, live)
    SELECT grant_id, node, gpu_class, devices, true FROM issued i
    WHERE (grant_id, node) NOT IN (SELECT * FROM over)
    ON CONFLICT DO NOTHING
"""
RELEASED: Final = """
    WITH released AS (
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS r(grant_id, node, gpu_class)
    ), over AS (
        DELETE FROM grants g USING released r
        WHERE g.grant_id = r.grant_id AND g.node = r.node AND g.live RETURNING g.grant_id, g.node
    )
    INSERT INTO grants (grant_id, node, gpu_class, devices, live)
    SELECT grant_id, node, gpu_class, 0, false FROM released
    WHERE (grant_id, node) NOT IN (SELECT * FROM over)
    ON CONFLICT DO NOTHING
"""
STOCKS: Final = """
    WITH reserved AS (
        SELECT node, gpu_class, sum(devices)::int AS devices FROM grants WHERE live GROUP BY node, gpu_class
    ), counted AS (
        SELECT coalesce(n.owner, n.cluster) AS cluster, n.node, d ->> 'gpu_class' AS gpu_class,
               count(*)::int AS devices,
               n.reported AND NOT n.stale AND n.said -> 'marks' = '[]' AS offered
        FROM nodes n, jsonb_array_elements(n.said -> 'devices') d
        GROUP BY n.node, d ->> 'gpu_class'
    )
    SELECT c.cluster, c.node, c.gpu_class, c.devices, coalesce(r.devices, 0) AS reserved, c.offered
    FROM counted c LEFT JOIN reserved r ON r.node = c.node AND r.gpu_class = c.gpu_class
    ORDER BY c.cluster, c.node, c.gpu_class
"""
NAMES: Final = "SELECT cluster, name FROM clusters"
DEVICES: Final = TypeAdapter(tuple[ObservedDevice, ...])


async def load(connection: Connection, clusters: Collection[ClusterId], nodes: Collection[NodeId]) -> View:
    """Lock clusters in order and return them with these nodes, their marks, and the classes."""
    await connection.execute(ENSURE, sorted(clusters))
    return await _load(connection, clusters, nodes=nodes)


async def load_declared(connection: Connection, clusters: Collection[ClusterId], *, everything: bool) -> View:
    """Lock clusters in order and return them with all their nodes; ``everything``: also those just being named."""
    if everything:
        await connection.execute(LOCK_ALL)
    await connection.execute(ENSURE, sorted(clusters))
    if everything:
        clusters = [ClusterId(row["cluster"]) for row in await connection.fetch(ALL_CLUSTERS)]
    return await _load(connection, clusters, of=clusters)


async def load_late(connection: Connection, policy: Policy, now: datetime) -> View:
    """Return the nodes whose silence or leave may be over the limit, under the locks of their clusters."""
    quiet, settled = (now - timedelta(seconds=each) for each in (policy.stale_seconds, policy.retire_seconds))
    rows = await connection.fetch(LATE, quiet, settled)
    if not rows:
        return View()
    view = await _load(connection, {row["cluster"] for row in rows}, nodes=[row["node"] for row in rows])
    granted = await connection.fetch(GRANTED, list(view.nodes))
    return replace(view, granted=frozenset(row["node"] for row in granted))


async def save(connection: Connection, before: View, after: View) -> None:
    """Write what changed between two views, one statement a table."""
    clusters = [each for key, each in after.clusters.items() if before.clusters.get(key) != each]
    classes = [each for key, each in after.classes.items() if before.classes.get(key) != each]
    changed = [each for key, each in after.nodes.items() if before.nodes.get(key) is not each]
    beats = {node.id for node in changed if _only_beat(before.nodes.get(node.id), node)}
    holds = [(node, drain) for node, holds in after.holds.items() for drain in holds if _changed(before, after, node)]
    await _write(connection, SAVE_CLUSTERS, map(_cluster_row, clusters))
    await _write(connection, SAVE_CLASSES, ((each.name, each.model, each.generation) for each in classes))
    await _write(connection, SAVE_NODES, (_node_row(node) for node in changed if node.id not in beats))
    await _write(connection, SAVE_BEATS, ((node.id, *_beat_row(node)) for node in changed if node.id in beats))
    await _write(connection, SAVE_MARKS, (_mark_row(node, drain, after.holds[node][drain]) for node, drain in holds))


async def note_grants(connection: Connection, issued: Sequence[GrantIssued], released: Sequence[GrantReleased]) -> None:
    """Note which grants are live on which nodes, in whatever order issue and release come; each comes once."""
    parts = [(grant.grant, part.node, grant.gpu_class, len(part.devices)) for grant in issued for part in grant.parts]
    await _write(connection, ISSUED, parts)
    await _write(connection, RELEASED, ((fact.grant, fact.node, fact.gpu_class) for fact in released))


async def stocks(connection: Connection) -> list[Stock]:
    """Return the devices of every node by class, as they were last said to be."""
    return [Stock(**row) for row in await connection.fetch(STOCKS)]


async def owned(connection: Connection, nodes: Collection[NodeId]) -> tuple[list[Node], list[ClusterId]]:
    """Return these nodes as they are now, and all declared clusters."""
    found = [_node(row) for row in await connection.fetch(NODES, list(nodes), [])]
    return found, [ClusterId(row["cluster"]) for row in await connection.fetch(DECLARED)]


async def cluster_names(connection: Connection) -> dict[ClusterId, str]:
    """Return the clusters by id."""
    return {ClusterId(row["cluster"]): row["name"] for row in await connection.fetch(NAMES)}


async def _load(
    connection: Connection,
    clusters: Collection[ClusterId],
    *,
    nodes: Collection[NodeId] = (),
    of: Collection[ClusterId] = (),
) -> View:
    locked = [_cluster(row) for row in await connection.fetch(CLUSTERS, list(clusters))]
    classes = [GpuClass(**row) for row in await connection.fetch(CLASSES)]
    found = {node.id: node for node in map(_node, await connection.fetch(NODES, list(nodes), list(of)))}
    holds: dict[NodeId, dict[DrainId, Hold]] = {}
    for row in await connection.fetch(MARKS, list({*found, *nodes}), bool(of)):
        holds.setdefault(NodeId(row["node"]), {})[DrainId(row["drain"])] = _hold(row)
    return View(
        clusters={cluster.id: cluster for cluster in locked},
        classes={gpu_class.name: gpu_class for gpu_class in classes},
        nodes=found,
        holds=holds,
        moves=await moves.under_way(connection, found),
    )


async def _write(connection: Connection, statement: str, rows: Iterable[Sequence[Any]]) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    if columns:
        await connection.execute(statement, *columns)


def _only_beat(before: Node | None, after: Node) -> bool:
    return before is not None and before.beat is not None and replace(before, beat=after.beat) == after


def _changed(before: View, after: View, node: NodeId) -> bool:
    return before.holds.get(node) is not after.holds[node]


def _cluster(row: Record) -> Cluster:
    return Cluster(
        ClusterId(row["cluster"]), row["name"], row["backend"], tuple(row["levels"]), row["generation"], row["version"]
    )


def _cluster_row(cluster: Cluster) -> tuple[Any, ...]:
    levels = to_json(cluster.levels).decode()
    return cluster.id, cluster.name, cluster.backend, levels, cluster.generation, cluster.version


def _node(row: Record) -> Node:
    heard = row["heard_at"]
    return Node(
        id=NodeId(row["node"]),
        cluster=ClusterId(row["cluster"]),
        name=row["name"],
        standing=Standing(row["standing"]),
        place=from_json(row["place"]),
        cpu_milli=row["cpu_milli"],
        memory_mib=row["memory_mib"],
        devices=DEVICES.validate_json(row["devices"]),
        reported=row["reported"],
        machine_cpu_milli=row["machine_cpu_milli"],
        machine_memory_mib=row["machine_memory_mib"],
        beat=None if heard is None else Beat(row["incarnation"], row["sequence"], heard),
        stale=row["stale"],
        left_out_at=row["left_out_at"],
        retired=row["retired"],
        version=row["version"],
        said=NodeInfo.model_validate_json(row["said"]) if row["said"] else None,
        owner=row["owner"],
        owner_name=row["owner_name"],
        owner_epoch=row["owner_epoch"],
        moves=row["moves"],
    )


def _node_row(node: Node) -> tuple[Any, ...]:
    return (
        node.id,
        node.cluster,
        node.name,
        node.standing.value,
        to_json(dict(node.place)).decode(),
        node.cpu_milli,
        node.memory_mib,
        DEVICES.dump_json(node.devices).decode(),
        node.reported,
        node.machine_cpu_milli,
        node.machine_memory_mib,
        *_beat_row(node),
        node.stale,
        node.left_out_at,
        node.retired,
        node.version,
        node.said.model_dump_json() if node.said else None,
        node.owner,
        node.owner_name,
        node.owner_epoch,
        node.moves,
    )


def _beat_row(node: Node) -> tuple[Any, ...]:
    beat = node.beat
    return (beat.incarnation, beat.sequence, beat.at) if beat else (None, None, None)


def _hold(row: Record) -> Hold:
    return Hold(row["version"], Mark.model_validate_json(row["mark"]) if row["mark"] else None)


def _mark_row(node: NodeId, drain: DrainId, hold: Hold) -> tuple[Any, ...]:
    return drain, node, hold.version, hold.mark.model_dump_json() if hold.mark else None
