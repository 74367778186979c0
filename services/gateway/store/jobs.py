"""Reading jobs: lists, one job, its history, and the numbers that explain it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json

from libs.pg.pool import Pool, Record
from schemas.base import Envelope
from schemas.codec import decode
from schemas.fleet import MarkEffect
from schemas.workload import Demand
from services.gateway.core.explain import Capacity, Hold, QuotaLine
from services.gateway.core.job import HistoryEntry, JobView


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job: what was asked, and how it stands."""

    job: str
    tenant: str
    name: str
    generation: int
    queue: str
    document: dict[str, JsonValue]
    submitted_by: str
    submitted_at: datetime
    withdrawn_at: datetime | None
    view: JobView


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs; None: any."""

    tenant: str | None = None
    queue: str | None = None
    state: str | None = None
    name: str | None = None


async def page(pool: Pool, wanted: Filter, after: tuple[datetime, str] | None, limit: int) -> list[JobRow]:
    """Return jobs, newest first, from behind a place in that order."""
    at, job = after or (None, None)
    rows = await pool.fetch(_PAGE, wanted.tenant, wanted.queue, wanted.state, wanted.name, at, job, limit)
    return [_job(row) for row in rows]


async def find(pool: Pool, reference: str, tenant: str | None) -> list[JobRow]:
    """Return the job with this id, or the newest job of this name in each tenant; ``tenant``: only there."""
    return [_job(row) for row in await pool.fetch(_FIND, reference, tenant)]


async def history(pool: Pool, job: str, limit: int) -> list[HistoryEntry]:
    """Return the last lines of a job's history, oldest first."""
    rows = await pool.fetch(_HISTORY, job, limit)
    return [HistoryEntry.model_validate_json(row["body"]) for row in reversed(rows)]


async def facts(pool: Pool, job: str, limit: int) -> list[Envelope]:
    """Return what was said of a job: the wishes, and then the first so many facts that were heard, as they came."""
    return [decode(row["body"].encode()) for row in await pool.fetch(_FACTS, job, limit)]


async def quotas(pool: Pool, tenant: str, queue: str, classes: Sequence[str]) -> list[QuotaLine]:
    """Return a queue's lines of these classes, in their order; no classes: all that the queue offers."""
    rows = [
        QuotaLine(row["gpu_class"], row["nominal"], row["used"]) for row in await pool.fetch(_QUOTAS, tenant, queue)
    ]
    by_class = {line.gpu_class: line for line in rows}
    return [by_class[name] for name in classes if name in by_class] if classes else rows


async def capacities(pool: Pool, demand: Demand, classes: Sequence[str]) -> list[Capacity]:
    """Return what the fleet has of these classes now, in their order."""
    counted = {row["gpu_class"]: row for row in await pool.fetch(_COUNTS, list(classes), demand.devices_per_replica)}
    holds: dict[str, list[Hold]] = {}
    for row in await pool.fetch(_HOLDS, list(classes)):
        holds.setdefault(row["gpu_class"], []).append(_hold(row))
    level = demand.topology_level
    domains = {row["gpu_class"]: row for row in await pool.fetch(_DOMAINS, list(classes), level)} if level else {}
    return [_capacity(name, counted.get(name), domains.get(name), holds.get(name, ()), level) for name in classes]


def _capacity(
    name: str, counts: Record | None, domain: Record | None, holds: Sequence[Hold], level: str | None
) -> Capacity:
    return Capacity(
        gpu_class=name,
        total=counts["total"] if counts else 0,
        node=counts["node"] if counts else 0,
        free=counts["free"] if counts else 0,
        unknown=counts["unknown"] if counts else 0,
        replicas=counts["replicas"] if counts else 0,
        domain=None if level is None else domain["size"] if domain else 0,
        domain_free=None if level is None else domain["free"] if domain else 0,
        holds=tuple(holds),
    )


def _hold(row: Record) -> Hold:
    marks = from_json(row["marks"])
    mark = next((m for m in marks if m["effect"] == MarkEffect.DRAIN), marks[0])
    return Hold(row["name"], mark["owner"], mark["reason"], datetime.fromisoformat(mark["since"]), row["idle"])


def _job(row: Record) -> JobRow:
    body = row["body"]
    view = JobView.model_validate_json(body) if body else JobView(job=row["job"], tenant=row["tenant"])
    return JobRow(
        job=row["job"],
        tenant=row["tenant"],
        name=row["name"],
        generation=row["generation"],
        queue=row["queue"],
        document=from_json(row["document"]),
        submitted_by=row["submitted_by"],
        submitted_at=row["submitted_at"],
        withdrawn_at=row["withdrawn_at"],
        view=view,
    )


_PAGE: Final = """
SELECT r.job, r.tenant, r.name, r.generation, r.queue, r.document, r.submitted_by, r.submitted_at, r.withdrawn_at,
       v.body
FROM request r LEFT JOIN job_view v ON v.job = r.job
WHERE ($1::text IS NULL OR r.tenant = $1) AND ($2::text IS NULL OR r.queue = $2)
  AND ($3::text IS NULL OR coalesce(v.state, 'Queued') = $3) AND ($4::text IS NULL OR r.name = $4)
  AND ($5::timestamptz IS NULL OR (r.submitted_at, r.job) < ($5, $6::text))
ORDER BY r.submitted_at DESC, r.job DESC LIMIT $7
"""
_FIND: Final = """
SELECT DISTINCT ON (r.tenant) r.job, r.tenant, r.name, r.generation, r.queue, r.document, r.submitted_by,
       r.submitted_at, r.withdrawn_at, v.body
FROM request r LEFT JOIN job_view v ON v.job = r.job
WHERE (r.job = $1 OR r.name = $1) AND ($2::text IS NULL OR r.tenant = $2)
ORDER BY r.tenant, (r.job = $1) DESC, r.generation DESC
"""
_HISTORY: Final = "SELECT body FROM job_history WHERE job = $1 ORDER BY at DESC, version DESC, fact LIMIT $2"
_FACTS: Final = """
SELECT convert_from(o.body, 'UTF8') AS body, 0 AS position
FROM request r JOIN outbox o ON o.id IN (r.fact, r.withdrawn_fact) WHERE r.job = $1
UNION ALL
(SELECT body::text, position FROM event WHERE job = $1 ORDER BY position LIMIT $2)
ORDER BY position
"""
_QUOTAS: Final = """
WITH live AS (
    SELECT v.job, v.charge_class AS gpu_class, v.charge_devices AS devices
    FROM job_view v JOIN request r ON r.job = v.job
    WHERE r.tenant = $1 AND r.queue = $2 AND NOT v.ended AND v.charge_attempt = v.attempt
), given_back AS (
    SELECT p.gpu_class, -cardinality(p.devices) AS devices
    FROM part p JOIN request r ON r.job = p.job JOIN job_view v ON v.job = p.job
    WHERE r.tenant = $1 AND r.queue = $2 AND (p.rank = 3 OR p.lost) AND NOT v.ended AND p.attempt = v.attempt
      AND v.charge_attempt = v.attempt
), leaving AS (
    SELECT p.gpu_class, cardinality(p.devices) AS devices
    FROM part p JOIN request r ON r.job = p.job JOIN job_view v ON v.job = p.job
    WHERE r.tenant = $1 AND r.queue = $2 AND p.rank < 3 AND NOT p.lost AND (v.ended OR p.attempt <> v.attempt)
), used AS (
    SELECT gpu_class, sum(devices)::int AS devices
    FROM (
        SELECT gpu_class, devices FROM live
        UNION ALL SELECT gpu_class, devices FROM given_back
        UNION ALL SELECT gpu_class, devices FROM leaving
    ) c GROUP BY gpu_class
)
SELECT q.quota ->> 'class' AS gpu_class, (q.quota ->> 'nominal')::int AS nominal, coalesce(u.devices, 0) AS used
FROM declaration d CROSS JOIN jsonb_array_elements(d.document -> 'spec' -> 'quotas') WITH ORDINALITY AS q(quota, place)
LEFT JOIN used u ON u.gpu_class = q.quota ->> 'class'
WHERE d.kind = 'Queue' AND d.tenant = $1 AND d.name = $2
ORDER BY q.place
"""
_COUNTS: Final = """
WITH held AS (
    SELECT node, gpu_class, sum(cardinality(devices))::int AS devices FROM part WHERE rank < 3 GROUP BY node, gpu_class
), counted AS (
    SELECT c.key AS gpu_class, c.value::int AS devices, n.stale, n.marked,
           greatest(c.value::int - coalesce(h.devices, 0), 0) AS idle
    FROM node_view n CROSS JOIN jsonb_each_text(n.classes) c
    LEFT JOIN held h ON h.node = n.node AND h.gpu_class = c.key
    WHERE NOT n.retired AND c.key = ANY($1::text[])
)
SELECT gpu_class, sum(devices)::int AS total, max(devices) AS node,
       coalesce(sum(idle) FILTER (WHERE NOT stale AND NOT marked), 0)::int AS free,
       coalesce(sum(devices) FILTER (WHERE stale), 0)::int AS unknown,
       coalesce(sum(idle / $2::int) FILTER (WHERE NOT stale AND NOT marked), 0)::int AS replicas
FROM counted GROUP BY gpu_class
"""
_HOLDS: Final = """
SELECT c.key AS gpu_class, n.name, n.body -> 'info' -> 'marks' AS marks, greatest(c.value::int - coalesce((
    SELECT sum(cardinality(p.devices)) FROM part p WHERE p.node = n.node AND p.gpu_class = c.key AND p.rank < 3
), 0), 0)::int AS idle
FROM node_view n CROSS JOIN jsonb_each_text(n.classes) c
WHERE NOT n.retired AND n.marked AND NOT n.stale AND c.key = ANY($1::text[])
ORDER BY n.name
"""
_DOMAINS: Final = """
WITH held AS (
    SELECT node, gpu_class, sum(cardinality(devices))::int AS devices FROM part WHERE rank < 3 GROUP BY node, gpu_class
), domain AS (
    SELECT c.key AS gpu_class, n.cluster, n.place ->> $2 AS name, sum(c.value::int)::int AS size,
           coalesce(sum(greatest(c.value::int - coalesce(h.devices, 0), 0))
                    FILTER (WHERE NOT n.stale AND NOT n.marked), 0)::int AS free
    FROM node_view n CROSS JOIN jsonb_each_text(n.classes) c
    LEFT JOIN held h ON h.node = n.node AND h.gpu_class = c.key
    WHERE NOT n.retired AND c.key = ANY($1::text[]) AND n.place ->> $2 IS NOT NULL
    GROUP BY c.key, n.cluster, n.place ->> $2
)
SELECT DISTINCT ON (gpu_class) gpu_class, size, free FROM domain ORDER BY gpu_class, size DESC, free DESC
"""
