"""Reading the fleet, the queues, the bill and the log of events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic_core import from_json

from libs.pg.pool import Pool, Record
from schemas.fleet import MoveInfo
from services.gateway.core.fleet import NodeView

MOVES_SHOWN: Final = 1_000


@dataclass(frozen=True, slots=True)
class Counts:
    """Devices of one class in one cluster. Held (marked) and unknown (silent) ones are neither allocatable nor idle."""

    cluster: str
    gpu_class: str
    total: int
    allocatable: int
    reserved: int
    idle: int
    held: int
    unknown: int


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, what is granted on it, and its open incidents."""

    view: NodeView
    reserved: int
    incidents: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue's line of one class."""

    tenant: str
    queue: str
    order: str
    preemption: str
    gpu_class: str
    nominal: int
    used: int
    waiting: int
    running: int
    fleet_total: int


@dataclass(frozen=True, slots=True)
class BillRow:
    """What an account owes for a queue and class."""

    account: str
    queue: str
    gpu_class: str
    currency: str
    device_seconds: int
    amount_micros: int


@dataclass(frozen=True, slots=True)
class EventRow:
    """A fact in the log of events, and its place there."""

    position: int
    type: str
    tenant: str | None
    job: str | None
    body: str


async def counts(pool: Pool) -> list[Counts]:
    """Return the devices of the fleet by cluster and class."""
    return [Counts(**row) for row in await pool.fetch(_COUNTS)]


async def nodes(pool: Pool, *, cluster: str | None, reference: str | None, after: str, limit: int) -> list[NodeRow]:
    """Return nodes by id, behind one of them; ``reference``: only those of this id or name."""
    return [_node(row) for row in await pool.fetch(_NODES, cluster, reference, after, limit)]


def _node(row: Record) -> NodeRow:
    return NodeRow(
        NodeView.model_validate_json(row["body"]),
        row["reserved"],
        from_json(row["incidents"] or "[]"),
    )


async def moves(pool: Pool, *, node: str | None, every: bool = False) -> list[MoveInfo]:
    """Return moves, the newest first: those under way, or every one; ``node``: only of this id or name."""
    return [MoveInfo.model_validate_json(row["info"]) for row in await pool.fetch(_MOVES, node, every, MOVES_SHOWN)]


async def cluster_names(pool: Pool) -> list[str]:
    """Return the names of the clusters that are declared."""
    return [row["name"] for row in await pool.fetch(_CLUSTER_NAMES)]


async def queues(pool: Pool, tenant: str | None) -> list[QueueRow]:
    """Return the lines of all queues of a tenant (None: all)."""
    return [QueueRow(**row) for row in await pool.fetch(_QUEUES, tenant)]


async def bill(pool: Pool, tenant: str | None, since: datetime | None, until: datetime | None) -> list[BillRow]:
    """Return sums over device intervals that ended in [since, until)."""
    return [BillRow(**row) for row in await pool.fetch(_BILL, tenant, since, until)]


async def last_position(pool: Pool) -> int:
    """Return the place of the newest event; 0: none."""
    return int(await pool.fetchval("SELECT coalesce(max(position), 0) FROM event"))


async def first_position(pool: Pool) -> int:
    """Return the place of the oldest event that is kept; 0: none."""
    return int(await pool.fetchval("SELECT coalesce(min(position), 0) FROM event"))


async def events(
    pool: Pool, after: int, limit: int, *, tenant: str | None = None, job: str | None = None, prefix: str = ""
) -> list[EventRow]:
    """Return events behind a place, oldest first."""
    return [EventRow(**row) for row in await pool.fetch(_EVENTS, after, limit, tenant, job, prefix)]


_COUNTS: Final = """
WITH granted AS (
    SELECT node, gpu_class, sum(cardinality(devices))::int AS devices FROM part WHERE rank < 3 GROUP BY node, gpu_class
), counted AS (
    SELECT n.cluster_name AS cluster, c.key AS gpu_class, c.value::int AS devices, coalesce(g.devices, 0) AS granted,
           n.stale, n.marked AND NOT n.stale AS held, NOT n.stale AND NOT n.marked AND c.key <> '' AS usable
    FROM node_view n CROSS JOIN jsonb_each_text(n.classes) c
    LEFT JOIN granted g ON g.node = n.node AND g.gpu_class = c.key
    WHERE NOT n.retired
)
SELECT cluster, gpu_class, sum(devices)::int AS total,
       coalesce(sum(devices) FILTER (WHERE usable), 0)::int AS allocatable,
       sum(granted)::int AS reserved,
       coalesce(sum(greatest(devices - granted, 0)) FILTER (WHERE usable), 0)::int AS idle,
       coalesce(sum(devices) FILTER (WHERE held), 0)::int AS held,
       coalesce(sum(devices) FILTER (WHERE stale), 0)::int AS unknown
FROM counted GROUP BY cluster, gpu_class ORDER BY cluster, gpu_class
"""
_NODES: Final = """
SELECT n.body,
    (SELECT coalesce(sum(cardinality(p.devices)), 0)::int FROM part p WHERE p.node = n.node AND p.rank < 3) AS reserved,
    (SELECT json_agg(l.data ORDER BY l.at) FROM latest l
     WHERE l.node = n.node AND l.noun = 'incident' AND l.verb <> 'cleared') AS incidents
FROM node_view n
WHERE NOT n.retired AND ($1::text IS NULL OR n.cluster_name = $1) AND ($2::text IS NULL OR n.node = $2 OR n.name = $2)
  AND n.cluster_name || '/' || n.name > $3
ORDER BY n.cluster_name || '/' || n.name LIMIT $4
"""
_MOVES: Final = """
SELECT data ->> 'info' AS info FROM latest
WHERE noun = 'move' AND ($2 OR verb NOT IN ('completed', 'cancelled'))
  AND ($1::text IS NULL OR node = $1 OR data -> 'info' ->> 'node_name' = $1)
ORDER BY data -> 'info' ->> 'requested_at' DESC, key LIMIT $3
"""
_CLUSTER_NAMES: Final = "SELECT data ->> 'name' AS name FROM latest WHERE noun = 'cluster' ORDER BY 1"
_QUEUES: Final = """
WITH live AS (
    SELECT r.tenant, r.queue, v.charge_class AS gpu_class, v.charge_devices AS devices
    FROM job_view v JOIN request r ON r.job = v.job
    WHERE NOT v.ended AND v.charge_attempt = v.attempt AND ($1::text IS NULL OR r.tenant = $1)
), given_back AS (
    SELECT r.tenant, r.queue, p.gpu_class, -cardinality(p.devices) AS devices
    FROM part p JOIN request r ON r.job = p.job JOIN job_view v ON v.job = p.job
    WHERE (p.rank = 3 OR p.lost) AND NOT v.ended AND p.attempt = v.attempt
      AND v.charge_attempt = v.attempt AND ($1::text IS NULL OR r.tenant = $1)
), leaving AS (
    SELECT r.tenant, r.queue, p.gpu_class, cardinality(p.devices) AS devices
    FROM part p JOIN request r ON r.job = p.job JOIN job_view v ON v.job = p.job
    WHERE p.rank < 3 AND NOT p.lost AND (v.ended OR p.attempt <> v.attempt) AND ($1::text IS NULL OR r.tenant = $1)
), used AS (
    SELECT tenant, queue, gpu_class, sum(devices)::int AS devices
    FROM (SELECT * FROM live UNION ALL SELECT * FROM given_back UNION ALL SELECT * FROM leaving) c
    GROUP BY tenant, queue, gpu_class
), standing AS (
    SELECT r.tenant, r.queue,
           count(*) FILTER (WHERE coalesce(v.state, 'Queued') = 'Queued')::int AS waiting,
           count(*) FILTER (WHERE v.state <> 'Queued')::int AS running
    FROM request r LEFT JOIN job_view v ON v.job = r.job
    WHERE NOT coalesce(v.ended, false) AND ($1::text IS NULL OR r.tenant = $1)
    GROUP BY r.tenant, r.queue
), fleet AS (
    SELECT c.key AS gpu_class, sum(c.value::int)::int AS devices
    FROM node_view n CROSS JOIN jsonb_each_text(n.classes) c WHERE NOT n.retired GROUP BY c.key
)
SELECT d.tenant, d.name AS queue, d.document -> 'spec' ->> 'order' AS order,
       coalesce(d.document -> 'spec' -> 'preemption' ->> 'withinQueue', 'Never') AS preemption,
       q.quota ->> 'class' AS gpu_class,
       (q.quota ->> 'nominal')::int AS nominal, coalesce(u.devices, 0) AS used, coalesce(s.waiting, 0) AS waiting,
       coalesce(s.running, 0) AS running, coalesce(f.devices, 0) AS fleet_total
FROM declaration d CROSS JOIN jsonb_array_elements(d.document -> 'spec' -> 'quotas') WITH ORDINALITY AS q(quota, place)
LEFT JOIN used u ON (u.tenant, u.queue, u.gpu_class) = (d.tenant, d.name, q.quota ->> 'class')
LEFT JOIN standing s ON (s.tenant, s.queue) = (d.tenant, d.name)
LEFT JOIN fleet f ON f.gpu_class = q.quota ->> 'class'
WHERE d.kind = 'Queue' AND ($1::text IS NULL OR d.tenant = $1)
ORDER BY d.tenant, d.name, q.place
"""
_BILL: Final = """
SELECT account, queue, gpu_class, currency,
       sum(extract(epoch FROM ended_at - started_at))::bigint AS device_seconds,
       sum(amount_micros)::bigint AS amount_micros
FROM usage_line
WHERE ($1::text IS NULL OR account = $1)
  AND ($2::timestamptz IS NULL OR ended_at >= $2) AND ($3::timestamptz IS NULL OR ended_at < $3)
GROUP BY account, queue, gpu_class, currency ORDER BY account, queue, gpu_class, currency
"""
_EVENTS: Final = """
SELECT position, type, tenant, job, body::text AS body FROM event
WHERE position > $1 AND ($3::text IS NULL OR tenant = $3) AND ($4::text IS NULL OR job = $4)
  AND starts_with(type, $5)
ORDER BY position LIMIT $2
"""
