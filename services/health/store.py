"""Health's memory in Postgres. A node's row is the lock: its holder alone changes what is known and said of it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from asyncpg import Record
from pydantic_core import from_json, to_json

from libs.pg.pool import Connection
from schemas.fleet import MarkEffect, Severity
from schemas.ids import ClusterId, DrainId, GrantId, IncidentId, NodeId
from services.health.core import Beat, Drain, DrainState, Fleet, Incident, Node, Order, Policy, Rank, Verb

ENSURE: Final = """
    INSERT INTO nodes (node, cluster) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING
"""
LOCK: Final = "SELECT FROM nodes WHERE node = ANY($1) ORDER BY node FOR UPDATE"
NODES: Final = """
    SELECT n.node, n.cluster, n.known_version, n.retired, n.marks, n.incarnation, n.sequence, n.heard_at, n.drains,
           n.incidents, d.drain, d.effect, d.state, d.version AS drain_version, d.fact,
           d.since AS drain_since,
           i.incident, i.severity, i.since, i.version AS incident_version,
           EXISTS (SELECT FROM grants g WHERE g.node = n.node AND g.live) AS granted
    FROM nodes n
    LEFT JOIN drains d ON d.node = n.node AND d.state <> 'lifted'
    LEFT JOIN incidents i ON i.node = n.node AND NOT i.cleared
    WHERE n.node = ANY($1)
"""
ORDERS: Final = "SELECT node, verb, version, at, owner, reason, session FROM orders WHERE node = ANY($1)"
FLEET: Final = """
    SELECT count(*) FILTER (WHERE n.heard_at > $1)::int AS talking,
           count(*) FILTER (WHERE n.heard_at <= $1 AND i.severity IS DISTINCT FROM 'lost')::int AS fallen,
           (SELECT last_at FROM fleet_silence) AS silent_at
    FROM nodes n LEFT JOIN incidents i ON i.node = n.node AND NOT i.cleared
    WHERE n.known_version > 0 AND NOT n.retired
"""
FLEET_WAS_SILENT: Final = """
    INSERT INTO fleet_silence (one, last_at) VALUES (true, $1)
    ON CONFLICT (one) DO UPDATE SET last_at = excluded.last_at
"""
SILENT: Final = """
    SELECT n.node FROM nodes n LEFT JOIN incidents i ON i.node = n.node AND NOT i.cleared
    WHERE n.known_version > 0 AND NOT n.retired
      AND ((i.node IS NULL AND n.heard_at <= $1) OR (i.severity = 'stale' AND n.heard_at <= $2))
    LIMIT 5000
"""
SETTLED: Final = """
    SELECT node FROM drains d
    WHERE state = 'acknowledged' AND since <= $1
      AND NOT EXISTS (SELECT FROM grants g WHERE g.node = d.node AND g.live)
"""
SAVE_NODES: Final = """
    UPDATE nodes n
    SET known_version = s.known_version, retired = s.retired, marks = s.marks, incarnation = s.incarnation,
        sequence = s.sequence, heard_at = s.heard_at, drains = s.drains, incidents = s.incidents
    FROM unnest($1::text[], $2::bigint[], $3::bool[], $4::jsonb[], $5::text[], $6::bigint[], $7::timestamptz[],
                $8::int[], $9::int[])
         AS s(node, known_version, retired, marks, incarnation, sequence, heard_at, drains, incidents)
    WHERE n.node = s.node
"""
SAVE_BEATS: Final = """
    UPDATE nodes n SET incarnation = b.incarnation, sequence = b.sequence, heard_at = b.heard_at
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[]) AS b(node, incarnation, sequence, heard_at)
    WHERE n.node = b.node
"""
SAVE_ORDERS: Final = """
    INSERT INTO orders (node, verb, version, at, owner, reason, session)
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[], $5::text[], $6::text[], $7::text[])
    ON CONFLICT (node, verb) DO UPDATE
    SET version = excluded.version, at = excluded.at, owner = excluded.owner, reason = excluded.reason,
        session = excluded.session
"""
SAVE_DRAINS: Final = """
    INSERT INTO drains (drain, node, effect, state, version, fact, since)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::uuid[], $7::timestamptz[])
    ON CONFLICT (drain) DO UPDATE
    SET effect = excluded.effect, state = excluded.state, version = excluded.version, fact = excluded.fact,
        since = excluded.since
"""
SAVE_INCIDENTS: Final = """
    INSERT INTO incidents (incident, node, severity, since, version, cleared)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::bigint[], $6::bool[])
    ON CONFLICT (incident) DO UPDATE
    SET severity = excluded.severity, version = excluded.version, cleared = excluded.cleared
"""
# issue and release are each heard once: whichever comes second ends the row
ISSUED: Final = """
    WITH issued AS (
        SELECT * FROM unnest($1::text[], $2::text[]) AS i(grant_id, node)
    ), over AS (
        DELETE FROM grants g USING issued i
        WHERE g.grant_id = i.grant_id AND g.node = i.node AND NOT g.live RETURNING g.grant_id, g.node
    )
    INSERT INTO grants (grant_id, node, live)
    SELECT grant_id, node, true FROM issued WHERE (grant_id, node) NOT IN (SELECT * FROM over)
    ON CONFLICT DO NOTHING
"""
RELEASED: Final = """
    WITH released AS (
        SELECT * FROM unnest($1::text[], $2::text[]) AS r(grant_id, node)
    ), over AS (
        DELETE FROM grants g USING released r
        WHERE g.grant_id = r.grant_id AND g.node = r.node AND g.live RETURNING g.grant_id, g.node
    )
    INSERT INTO grants (grant_id, node, live)
    SELECT grant_id, node, false FROM released WHERE (grant_id, node) NOT IN (SELECT * FROM over)
    ON CONFLICT DO NOTHING
"""
UNANSWERED: Final = """
    SELECT d.fact FROM drains d JOIN nodes n ON n.node = d.node
    WHERE n.known_version > 0 AND NOT n.retired AND d.since <= $1
      AND (d.state = 'requested' OR (d.state = 'lifted' AND n.marks ? d.drain))
    LIMIT 1000
"""
INCIDENTS_NOW: Final = "SELECT severity, count(*)::int AS incidents FROM incidents WHERE NOT cleared GROUP BY severity"
DRAINS_NOW: Final = "SELECT state, count(*)::int AS drains FROM drains WHERE state <> 'lifted' GROUP BY state"


async def load(connection: Connection, nodes: Collection[NodeId]) -> dict[NodeId, Node]:
    """Lock those of these nodes that are known by whatever named them, in order, and return them."""
    await connection.execute(LOCK, list(nodes))
    orders: dict[str, dict[Verb, Order]] = {}
    for row in await connection.fetch(ORDERS, list(nodes)):
        orders.setdefault(row["node"], {})[row["verb"]] = _order(row)
    found = (_node(row, orders.get(row["node"], {})) for row in await connection.fetch(NODES, list(nodes)))
    return {node.id: node for node in found}


async def ensure(connection: Connection, nodes: Mapping[NodeId, ClusterId]) -> None:
    """Make rows for nodes that are named for the first time, in order, so that two turns cannot deadlock."""
    await _write(connection, ENSURE, sorted(nodes.items()))


async def save(connection: Connection, before: Mapping[NodeId, Node], after: Mapping[NodeId, Node]) -> None:
    """Write what changed, one statement a table. Drains and incidents that ended come before new ones."""
    changed = [(before[key], node) for key, node in after.items() if before[key] is not node]
    beats = {node.id for old, node in changed if replace(old, beat=node.beat) == node}
    others = [(old, node) for old, node in changed if node.id not in beats]
    await _write(connection, SAVE_BEATS, ((node.id, *_beat_row(node)) for _, node in changed if node.id in beats))
    await _write(connection, SAVE_NODES, (_node_row(node) for _, node in others))
    await _write(connection, SAVE_ORDERS, (row for old, node in others for row in _order_rows(old, node)))
    await _write(connection, SAVE_DRAINS, (row for old, node in others for row in _drain_rows(old, node)))
    await _write(connection, SAVE_INCIDENTS, (row for old, node in others for row in _incident_rows(old, node)))


async def note_grants(
    connection: Connection, issued: Iterable[tuple[GrantId, NodeId]], released: Iterable[tuple[GrantId, NodeId]]
) -> None:
    """Note which grants are live on which nodes, in whatever order issue and release come; each comes once."""
    await _write(connection, ISSUED, issued)
    await _write(connection, RELEASED, released)


async def fleet(connection: Connection, policy: Policy, now: datetime) -> Fleet:
    """Return how many of the nodes in service talk and how many fell silent."""
    row = await connection.fetchrow(FLEET, now - timedelta(seconds=policy.stale_seconds))
    assert row is not None
    return Fleet(**row)


async def fleet_was_silent(connection: Connection, now: datetime) -> None:
    """Note that the fleet is silent now."""
    await connection.execute(FLEET_WAS_SILENT, now)


async def silent(connection: Connection, policy: Policy, now: datetime) -> list[NodeId]:
    """Return nodes whose silence may mean something new."""
    stale, lost = (now - timedelta(seconds=each) for each in (policy.stale_seconds, policy.lost_seconds))
    return [NodeId(row["node"]) for row in await connection.fetch(SILENT, stale, lost)]


async def settled(connection: Connection, policy: Policy, now: datetime) -> list[NodeId]:
    """Return nodes whose drain was acknowledged long enough ago and where nothing is granted."""
    since = now - timedelta(seconds=policy.settle_seconds)
    return [NodeId(row["node"]) for row in await connection.fetch(SETTLED, since)]


async def unanswered(connection: Connection, now: datetime, *, seconds: float) -> list[UUID]:
    """Return requests whose mark no node shows after so long, and lifts whose mark one still shows."""
    return [row["fact"] for row in await connection.fetch(UNANSWERED, now - timedelta(seconds=seconds))]


async def _write(connection: Connection, statement: str, rows: Iterable[Sequence[Any]]) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    if columns:
        await connection.execute(statement, *columns)


def _order(row: Record) -> Order:
    return Order(Rank(row["version"], row["at"]), row["owner"], row["reason"], row["session"])


def _order_rows(before: Node, after: Node) -> list[tuple[Any, ...]]:
    return [
        (after.id, verb, *order.rank, order.owner, order.reason, order.session)
        for verb, order in after.orders.items()
        if before.orders.get(verb) is not order
    ]


def _drain_rows(before: Node, after: Node) -> list[tuple[Any, ...]]:
    drains = after.lifted + ((after.drain,) if after.drain and after.drain is not before.drain else ())
    return [
        (each.id, after.id, each.effect.value, each.state.value, each.version, each.fact, each.since) for each in drains
    ]


def _incident_rows(before: Node, after: Node) -> list[tuple[Any, ...]]:
    still = after.incident if after.incident is not before.incident else None
    rows = [(each, True) for each in after.cleared] + ([(still, False)] if still else [])
    return [(each.id, after.id, each.severity.value, each.since, each.version, cleared) for each, cleared in rows]


def _node(row: Record, orders: Mapping[Verb, Order]) -> Node:
    heard = row["heard_at"]
    marks = from_json(row["marks"])
    return Node(
        id=NodeId(row["node"]),
        cluster=ClusterId(row["cluster"]),
        known_version=row["known_version"],
        retired=row["retired"],
        marks={DrainId(drain): MarkEffect(effect) for drain, effect in marks.items()},
        granted=row["granted"],
        beat=None if heard is None else Beat(row["incarnation"], row["sequence"], heard),
        orders=orders,
        drain=_drain(row) if row["drain"] else None,
        drains=row["drains"],
        incident=_incident(row) if row["incident"] else None,
        incidents=row["incidents"],
    )


async def open_now(connection: Connection) -> tuple[dict[tuple[str, ...], int], dict[tuple[str, ...], int]]:
    """Count the open incidents by severity, and the drains that are not lifted by state."""
    incidents, drains = await connection.fetch(INCIDENTS_NOW), await connection.fetch(DRAINS_NOW)
    return (
        {(row["severity"],): row["incidents"] for row in incidents},
        {(row["state"],): row["drains"] for row in drains},
    )


def _drain(row: Record) -> Drain:
    return Drain(
        id=DrainId(row["drain"]),
        effect=MarkEffect(row["effect"]),
        state=DrainState(row["state"]),
        version=row["drain_version"],
        fact=row["fact"],
        since=row["drain_since"],
    )


def _incident(row: Record) -> Incident:
    return Incident(IncidentId(row["incident"]), Severity(row["severity"]), row["since"], row["incident_version"])


def _node_row(node: Node) -> tuple[Any, ...]:
    marks = to_json(dict(node.marks)).decode()
    return node.id, node.known_version, node.retired, marks, *_beat_row(node), node.drains, node.incidents


def _beat_row(node: Node) -> tuple[Any, ...]:
    beat = node.beat
    return (beat.incarnation, beat.sequence, beat.at) if beat else (None, None, None)
