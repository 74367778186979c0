"""Admission's memory in Postgres. A queue's row is the lock: its holder alone books on the queue or moves its jobs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from asyncpg import Record
from pydantic_core import from_json, to_json

from libs.pg.pool import Connection
from libs.remembered import remembered
from schemas.calls import OpenCharge
from schemas.ids import JobId, TenantId
from schemas.lifecycle import JobState
from schemas.reasons import Reason
from schemas.workload import Demand, Preemption, Recovery, Work
from services.admission.core import Account, Charge, Job, Queue, QueueKey, View

_demand, _work, _reason = remembered(Demand), remembered(Work), remembered(Reason)
_plan, _recovery = remembered(Preemption), remembered(Recovery)

ENSURE = """
    INSERT INTO queues (tenant, name) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING
"""
LOCK = """
    SELECT q.tenant, q.name, q.strict, q.nominal, q.generation, q.preempts FROM queues q
    WHERE (q.tenant, q.name) IN (
        SELECT * FROM unnest($1::text[], $2::text[])
        UNION SELECT tenant, queue FROM jobs WHERE job = ANY($3)
    )
    ORDER BY q.tenant, q.name FOR UPDATE OF q
"""
USED = """
    SELECT tenant, queue, gpu_class, sum(booked)::int AS devices FROM charges
    WHERE NOT over AND account = 'queue' AND (tenant, queue) IN (SELECT * FROM unnest($1::text[], $2::text[]))
    GROUP BY tenant, queue, gpu_class
"""
# with those who hold room: whoever comes later must not take it
NAMED = """
    SELECT job, tenant, queue, name, priority, demand, work, retries, queued_at, state, attempt, failures, evictions,
           version, reason, not_before, admitted_at, preemption, held_since, recovery
    FROM jobs WHERE job IN (
        SELECT unnest($1::text[])
        UNION SELECT job FROM jobs
        WHERE (held_since IS NOT NULL OR recovery IS NOT NULL)
          AND (tenant, queue) IN (SELECT * FROM unnest($2::text[], $3::text[]))
    )
"""
WAITING = """
    SELECT w.* FROM unnest($1::text[], $2::text[]) AS q (tenant, name), LATERAL (
        SELECT job, tenant, queue, j.name, priority, demand, work, retries, queued_at, state, attempt, failures,
               evictions, version, reason, not_before, admitted_at, preemption, held_since, recovery
        FROM jobs j
        WHERE j.tenant = q.tenant AND j.queue = q.name AND state = 'Queued'
          AND (not_before IS NULL OR not_before <= $3 OR not_before > $3 + interval '1 hour')  -- as Job.in_backoff
        ORDER BY priority DESC, queued_at, job LIMIT $4
    ) w
"""
# whom those who wait may preempt: $3 has the highest priority that waits in each queue
LOWER = """
    SELECT v.* FROM unnest($1::text[], $2::text[], $3::int[]) AS q (tenant, name, below), LATERAL (
        SELECT job, tenant, queue, j.name, priority, demand, work, retries, queued_at, state, attempt, failures,
               evictions, version, reason, not_before, admitted_at, preemption, held_since, recovery
        FROM jobs j
        WHERE j.tenant = q.tenant AND j.queue = q.name AND state = 'Admitted' AND priority < q.below
        ORDER BY priority, admitted_at DESC, job LIMIT $4
    ) v
"""
LEAVING = """
    SELECT c.tenant, c.queue, c.gpu_class, sum(c.booked)::int AS devices FROM charges c JOIN jobs j USING (job)
    WHERE NOT c.over AND c.account = 'queue' AND (c.tenant, c.queue) IN (SELECT * FROM unnest($1::text[], $2::text[]))
      AND (j.state <> 'Admitted' OR c.attempt < j.attempt) AND NOT c.job = ANY($3)
    GROUP BY c.tenant, c.queue, c.gpu_class
"""
# also the current attempt's when it is over: the end of the attempt may come after the end of its charge
CHARGES = """
    SELECT c.job, c.attempt, c.tenant, c.queue, c.gpu_class, c.devices, c.fact, c.account, c.granted, c.answered,
           c.over, c.released, c.lost
    FROM charges c JOIN jobs j ON j.job = c.job
    WHERE c.job = ANY($1) AND (NOT c.over OR c.attempt = j.attempt)
"""
WITHDRAWN = "SELECT job, withdrawn_by FROM withdrawn WHERE job = ANY($1)"
SAVE_QUEUES = """
    INSERT INTO queues (tenant, name, strict, nominal, generation, preempts)
    SELECT * FROM unnest($1::text[], $2::text[], $3::bool[], $4::jsonb[], $5::int[], $6::bool[])
    ON CONFLICT (tenant, name) DO UPDATE
    SET strict = excluded.strict, nominal = excluded.nominal, generation = excluded.generation,
        preempts = excluded.preempts
"""
SAVE_JOBS = """
    INSERT INTO jobs (job, tenant, queue, name, priority, demand, work, retries, queued_at, state, attempt, failures,
                      evictions, version, reason, not_before, admitted_at, preemption, held_since, recovery)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::jsonb[], $7::jsonb[],
                         $8::int[], $9::timestamptz[], $10::text[], $11::int[], $12::int[], $13::int[], $14::int[],
                         $15::jsonb[], $16::timestamptz[], $17::timestamptz[], $18::jsonb[], $19::timestamptz[],
                         $20::jsonb[])
    ON CONFLICT (job) DO UPDATE
    SET state = excluded.state, attempt = excluded.attempt, failures = excluded.failures,
        evictions = excluded.evictions, version = excluded.version, reason = excluded.reason,
        not_before = excluded.not_before, admitted_at = excluded.admitted_at,
        preemption = excluded.preemption, held_since = excluded.held_since, recovery = excluded.recovery
"""
SAVE_CHARGES = """
    INSERT INTO charges (job, attempt, tenant, queue, gpu_class, devices, fact, account, granted, answered, over,
                         released, lost, booked)
    SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[], $6::int[], $7::uuid[],
                         $8::text[], $9::bool[], $10::bool[], $11::bool[], $12::jsonb[], $13::jsonb[], $14::int[])
    ON CONFLICT (job, attempt) DO UPDATE
    SET fact = excluded.fact, account = excluded.account, granted = excluded.granted, answered = excluded.answered,
        over = excluded.over, released = excluded.released, lost = excluded.lost, booked = excluded.booked,
        changed_at = now()
"""
SAVE_WITHDRAWN = """
    INSERT INTO withdrawn (job, withdrawn_by) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING
"""
DUE = """
    SELECT DISTINCT tenant, queue FROM jobs
    WHERE state = 'Queued' AND (not_before <= $1 OR not_before > $1 + interval '1 hour')
    UNION
    SELECT tenant, queue FROM jobs
    WHERE held_since <= $1 - make_interval(secs => $2)
      AND (NOT (preemption ->> 'given_up')::bool OR held_since <= $1 - make_interval(secs => 2 * $2))
    UNION
    SELECT tenant, queue FROM jobs WHERE recovery IS NOT NULL AND (recovery ->> 'until')::timestamptz <= $1
"""
OVERDUE = """
    SELECT j.job FROM jobs j JOIN charges c USING (job, attempt)
    WHERE j.state = 'Admitted' AND NOT c.granted AND NOT c.over AND j.admitted_at <= $1
      AND (j.recovery IS NULL OR (j.recovery ->> 'until')::timestamptz <= $2)
    ORDER BY j.admitted_at LIMIT 200
"""
SHIFT = """
    UPDATE jobs
    SET admitted_at = admitted_at + make_interval(secs => $1)
    WHERE state = 'Admitted' AND CASE WHEN $1 > 0 THEN admitted_at + make_interval(secs => $1) <= now()
                                      ELSE admitted_at > now() END
"""
SHIFT_HOLDS = """
    UPDATE jobs SET held_since = least(held_since + make_interval(secs => $1), now()) WHERE held_since IS NOT NULL
"""
SHORTEN = """
    UPDATE jobs SET not_before = now() + make_interval(secs => $1)
    WHERE state = 'Queued' AND not_before > now() + make_interval(secs => $1)
"""
UNANSWERED = """
    SELECT fact FROM charges WHERE NOT over AND NOT answered AND changed_at <= $1 ORDER BY changed_at LIMIT 1000
"""
WAIT_NOW = """
    SELECT tenant || '/' || queue AS queue, coalesce(demand -> 'classes' ->> 0, 'any') AS gpu_class,
           count(*)::int AS jobs,
           sum((demand ->> 'replicas')::int * (demand ->> 'devices_per_replica')::int)::int AS devices
    FROM jobs WHERE state = 'Queued' GROUP BY 1, 2
"""
CHARGED_NOW = """
    SELECT tenant || '/' || queue AS queue, gpu_class, sum(booked)::int AS devices FROM charges
    WHERE NOT over AND account = 'queue' GROUP BY 1, 2
"""
QUOTAS_NOW = """
    SELECT tenant || '/' || name AS queue, key AS gpu_class, value::int AS devices
    FROM queues, jsonb_each_text(nominal) WHERE generation > 0
"""
OPEN_CHARGES = """
    SELECT job, attempt,
           devices - (SELECT coalesce(sum(value::int), 0)::int FROM jsonb_each_text(released)) AS devices
    FROM charges
    WHERE NOT over AND granted AND (job, attempt) > ($1, $2) ORDER BY job, attempt LIMIT $3
"""
Line = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Numbers:
    """What waits, is charged and may be, by queue and class: devices, and jobs of those that wait."""

    jobs: dict[Line, int]
    waiting: dict[Line, int]
    charged: dict[Line, int]
    quotas: dict[Line, int]


async def numbers(connection: Connection) -> Numbers:
    """Count all queues. A job that waits counts under the class it would like best."""
    waiting = await connection.fetch(WAIT_NOW)
    charged, quotas = await connection.fetch(CHARGED_NOW), await connection.fetch(QUOTAS_NOW)
    return Numbers(_lines(waiting, "jobs"), _lines(waiting, "devices"), _lines(charged), _lines(quotas))


def _lines(rows: Iterable[Record], number: str = "devices") -> dict[Line, int]:
    return {(row["queue"], row["gpu_class"]): row[number] for row in rows}


ENDS = """
    SELECT c.fact FROM charges c
    JOIN unnest($1::text[], $2::int[]) AS k (job, attempt) ON c.job = k.job AND c.attempt = k.attempt
    JOIN jobs j ON j.job = c.job
    WHERE c.attempt < j.attempt OR j.state NOT IN ('Queued', 'Admitted')
"""


async def load(
    connection: Connection,
    keys: Collection[QueueKey],
    jobs: Collection[JobId],
    *,
    now: datetime,
    scan: int,
    makes_room: bool,
    wished: Mapping[QueueKey, int],
) -> View:
    """Lock the queues (these, and those of these jobs) in order and return all that a turn may touch.

    Jobs that wait come along, ``scan`` a queue at most, where there is room for anybody or the turn may make some; and
    where jobs preempt each other, with as many whom they may end, or those whose priorities are ``wished`` for.
    """
    if keys:
        await connection.execute(ENSURE, *_columns(keys, 2))
    queues = [_queue(row) for row in await connection.fetch(LOCK, *_columns(keys, 2), list(jobs))]
    pairs = _columns([queue.key for queue in queues], 2)
    used = _accounts(await connection.fetch(USED, *pairs))
    found = {job.id: job for job in map(_job, await connection.fetch(NAMED, list(jobs), *pairs))}
    roomy = [queue.key for queue in queues if makes_room or queue.preempts or _has_room(queue, used)]
    if roomy:
        waiting = map(_job, await connection.fetch(WAITING, *_columns(roomy, 2), now, scan))
        found |= {job.id: job for job in waiting if job.id not in found}
    preempting = {queue.key for queue in queues if queue.preempts}
    below = {key: priority for key, priority in wished.items() if key in preempting}
    found |= await _lower(connection, preempting, below, found, scan)
    counted = preempting | {job.queue for job in found.values() if job.recovery}
    charges = map(_charge, await connection.fetch(CHARGES, list(found)))
    gone = await connection.fetch(WITHDRAWN, list(jobs))
    return View(
        queues={queue.key: queue for queue in queues if queue.generation},
        jobs=found,
        charges={(charge.job, charge.attempt): charge for charge in charges},
        used=used,
        withdrawn={JobId(row["job"]): row["withdrawn_by"] for row in gone},
        leaving=await _leaving(connection, counted, found),
    )


async def _lower(
    connection: Connection,
    keys: Collection[QueueKey],
    below: dict[QueueKey, int],
    found: Mapping[JobId, Job],
    most: int,
) -> dict[JobId, Job]:
    """Return admitted jobs of a lower priority than these or some job that waits beside them, the first to go first."""
    for job in found.values():
        if job.queue in keys and job.state is JobState.QUEUED:
            below[job.queue] = max(below.get(job.queue, job.priority), job.priority)
    if not below:
        return {}
    rows = await connection.fetch(LOWER, *_columns(below, 2), list(below.values()), most)
    return {job.id: job for job in map(_job, rows) if job.id not in found}


async def _leaving(
    connection: Connection, keys: Collection[QueueKey], found: Collection[JobId]
) -> dict[tuple[QueueKey, str], int]:
    """Return what attempts that are over keep charged, but of the jobs that were found."""
    return _accounts(await connection.fetch(LEAVING, *_columns(keys, 2), list(found))) if keys else {}


async def save(connection: Connection, before: View, after: View) -> None:
    """Write what changed between two views, one statement a table."""
    queues = [q for key, q in after.queues.items() if before.queues.get(key) is not q]
    jobs = [job for key, job in after.jobs.items() if before.jobs.get(key) is not job]
    charges = [charge for key, charge in after.charges.items() if before.charges.get(key) is not charge]
    withdrawn = [(job, who) for job, who in after.withdrawn.items() if job not in before.withdrawn]
    if queues:
        await connection.execute(SAVE_QUEUES, *_columns(map(_queue_row, queues), 6))
    if jobs:
        await connection.execute(SAVE_JOBS, *_columns(map(_job_row, jobs), 20))
    if charges:
        await connection.execute(SAVE_CHARGES, *_columns(map(_charge_row, charges), 14))
    if withdrawn:
        await connection.execute(SAVE_WITHDRAWN, *_columns(withdrawn, 2))


async def due(connection: Connection, now: datetime, *, preemption_seconds: int) -> list[QueueKey]:
    """Return the queues with a job whose backoff is over, or for which room was held for so long."""
    rows = await connection.fetch(DUE, now, preemption_seconds)
    return [QueueKey(TenantId(row["tenant"]), row["queue"]) for row in rows]


async def overdue(connection: Connection, before: datetime, now: datetime) -> list[JobId]:
    """Return jobs admitted before that time which still have no devices, and do not come back to what is held."""
    return [JobId(row["job"]) for row in await connection.fetch(OVERDUE, before, now)]


async def shift(connection: Connection, seconds: float, *, most_seconds: int) -> None:
    """Let nobody's wait for devices or room count so many seconds; negative: the clock was put back by so much."""
    await connection.execute(SHIFT, seconds)
    await connection.execute(SHIFT_HOLDS, seconds)
    await connection.execute(SHORTEN, most_seconds)


async def unanswered(connection: Connection, now: datetime, *, seconds: float) -> list[UUID]:
    """Return the facts about attempts that placement was not heard on for so long."""
    return [row["fact"] for row in await connection.fetch(UNANSWERED, now - timedelta(seconds=seconds))]


async def open_charges(connection: Connection, after: tuple[str, int], limit: int) -> list[OpenCharge]:
    """Return charges of attempts that were given devices, behind one of them, by job and attempt."""
    rows = await connection.fetch(OPEN_CHARGES, *after, limit)
    return [OpenCharge(job=row["job"], attempt=row["attempt"], devices=row["devices"]) for row in rows]


async def ends(connection: Connection, attempts: Collection[tuple[JobId, int]]) -> list[UUID]:
    """Return what was last said of those of these attempts that are over."""
    return [row["fact"] for row in await connection.fetch(ENDS, *_columns(attempts, 2))]


def _columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def _accounts(rows: Iterable[Record]) -> dict[tuple[QueueKey, str], int]:
    return {(QueueKey(TenantId(row["tenant"]), row["queue"]), row["gpu_class"]): row["devices"] for row in rows}


def _has_room(queue: Queue, used: dict[tuple[QueueKey, str], int]) -> bool:
    return any(nominal > used.get((queue.key, gpu_class), 0) for gpu_class, nominal in queue.nominal.items())


def _queue(row: Record) -> Queue:
    key = QueueKey(TenantId(row["tenant"]), row["name"])
    return Queue(key, row["strict"], from_json(row["nominal"]), row["generation"], row["preempts"])


def _queue_row(queue: Queue) -> tuple[Any, ...]:
    return (*queue.key, queue.strict, to_json(dict(queue.nominal)).decode(), queue.generation, queue.preempts)


def _job(row: Record) -> Job:
    held_since = row["held_since"]  # later than in the plan by what did not count
    return Job(
        id=JobId(row["job"]),
        queue=QueueKey(TenantId(row["tenant"]), row["queue"]),
        name=row["name"],
        priority=row["priority"],
        demand=_demand(row["demand"]),
        work=_work(row["work"]),
        retries=row["retries"],
        queued_at=row["queued_at"],
        state=JobState(row["state"]),
        attempt=row["attempt"],
        failures=row["failures"],
        evictions=row["evictions"],
        version=row["version"],
        reason=_reason(row["reason"]) if row["reason"] else None,
        not_before=row["not_before"],
        admitted_at=row["admitted_at"],
        preemption=_plan(row["preemption"]).model_copy(update={"since": held_since}) if held_since else None,
        recovery=_recovery(row["recovery"]) if row["recovery"] else None,
    )


def _job_row(job: Job) -> tuple[Any, ...]:
    return (
        job.id,
        *job.queue,
        job.name,
        job.priority,
        job.demand.model_dump_json(),
        job.work.model_dump_json(),
        job.retries,
        job.queued_at,
        job.state.value,
        job.attempt,
        job.failures,
        job.evictions,
        job.version,
        job.reason.model_dump_json() if job.reason else None,
        job.not_before,
        job.admitted_at,
        job.preemption.model_dump_json() if job.preemption else None,
        job.preemption.since if job.preemption else None,
        job.recovery.model_dump_json() if job.recovery else None,
    )


def _charge(row: Record) -> Charge:
    fields = dict(row)
    fields["queue"] = QueueKey(TenantId(fields.pop("tenant")), fields["queue"])
    fields["account"] = Account(fields["account"])
    fields |= {name: from_json(fields[name]) for name in ("released", "lost")}
    return Charge(**fields)


def _charge_row(charge: Charge) -> tuple[Any, ...]:
    return (
        *(charge.job, charge.attempt, *charge.queue, charge.gpu_class, charge.devices),
        *(charge.fact, charge.account.value, charge.granted, charge.answered, charge.over),
        *(to_json(dict(parts)).decode() for parts in (charge.released, charge.lost)),
        charge.unsettled,
    )
