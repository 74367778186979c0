"""Attempts that wait, were granted, were refused for good, or are over. The row's lock orders admission and end."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from libs.pg.outbox import answer_another
from libs.pg.pool import Connection, Record
from libs.remembered import remembered
from schemas.base import fact_type
from schemas.ids import GrantId, JobId, TenantId, fact_id
from schemas.lifecycle import PartState
from schemas.workload import Demand, GrantReleased, GrantRevoked, JobAdmitted, Work
from services.placement.core.decide import Pending, Refusal

Attempt = tuple[JobId, int]
_demand, _work = remembered(Demand), remembered(Work)


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over. ``granted``: it was given devices at some time."""

    job: JobId
    attempt: int
    tenant: TenantId
    granted: bool
    refusals: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal to say: its version, and the fact that it answers."""

    refusal: Refusal
    version: int
    cause: UUID | None


async def admit(connection: Connection, admitted: Sequence[tuple[JobAdmitted, int, UUID]]) -> list[Ended]:
    """Let attempts wait (fact, version, its id), of one attempt by the newest. Return those that are given nothing.

    They were over before (R9), or had been given devices that an older ledger has forgotten (R12).
    """
    newest = {
        (fact.job, fact.attempt): (fact, version, cause) for fact, version, cause in sorted(admitted, key=_version)
    }
    facts = [fact for fact, _, _ in newest.values()]
    await connection.execute(
        _ADMIT,
        [fact.job for fact in facts],
        [fact.attempt for fact in facts],
        [fact.tenant for fact in facts],
        [fact.name for fact in facts],
        [fact.queue for fact in facts],
        [fact.priority for fact in facts],
        [fact.gpu_class for fact in facts],
        [fact.demand.model_dump_json() for fact in facts],
        [fact.work.model_dump_json() for fact in facts],
        [fact.queued_at for fact in facts],
        [cause for _, _, cause in newest.values()],
        [version for _, version, _ in newest.values()],
    )
    rows = await connection.fetch(
        _REFUSE_AGAIN,
        [fact.job for fact in facts],
        [fact.attempt for fact in facts],
        [cause for _, _, cause in newest.values()],
        [version for _, version, _ in newest.values()],
    )
    return [_ended(row) for row in rows]


async def end(connection: Connection, over: Sequence[tuple[JobId, int, TenantId, UUID]]) -> list[Ended]:
    """Put an end to these attempts, known or not (R9); what is said of them from now on answers that."""
    columns = [list(column) for column in zip(*over, strict=True)]
    return [_ended(row) for row in await connection.fetch(_END, *columns)]


async def answer_ends(connection: Connection, over: Sequence[tuple[JobId, int, TenantId, UUID]]) -> None:
    """Let what was said of the grants' ends answer the ends of their attempts, which came later."""
    keys = [job for job, _, _, _ in over], [attempt for _, attempt, _, _ in over]
    answers: dict[UUID, UUID] = {}
    for row in await connection.fetch(_SAID_OF_ENDS, *keys):
        answers[fact_id(fact_type(GrantRevoked), row["id"], row["revocation"])] = row["cause"]
        if row["state"] == PartState.RELEASED:
            answers[fact_id(fact_type(GrantReleased), row["id"], row["version"])] = row["cause"]
    await answer_another(connection, answers)


async def note_run_over(connection: Connection, ids: Collection[GrantId]) -> None:
    """Note that dispatch has said how the runs of these grants ended."""
    await connection.execute(_RUN_OVER, list(ids))


async def said_of_ends(connection: Connection, ids: Collection[GrantId]) -> list[UUID]:
    """Return what was said of these grants' ends: the revocation, and the release of each part."""
    rows = await connection.fetch(_ENDS_OF_GRANTS, list(ids))
    revoked = {fact_id(fact_type(GrantRevoked), row["id"], row["revocation"]) for row in rows}
    over = [row for row in rows if row["state"] == PartState.RELEASED]
    return [*revoked, *(fact_id(fact_type(GrantReleased), row["id"], row["version"]) for row in over)]


async def end_earlier(connection: Connection, jobs: Sequence[JobId]) -> list[Ended]:
    """End all attempts of these jobs but the last: a job has one current attempt. Return those that had no end."""
    return [_ended(row) for row in await connection.fetch(_END_EARLIER, list(jobs))]


async def live_grants(connection: Connection, ended: Sequence[Ended]) -> dict[str, Attempt]:
    """Return the live grants of attempts that are over."""
    rows = await connection.fetch(_LIVE_GRANTS, [item.job for item in ended], [item.attempt for item in ended])
    return {row["id"]: (JobId(row["job"]), row["attempt"]) for row in rows}


async def pending(connection: Connection, limit: int) -> list[Pending]:
    """Return the attempts that wait, the most urgent first."""
    return [_pending(row) for row in await connection.fetch(_PENDING, limit)]


async def refuse(connection: Connection, refusals: Sequence[Refusal], *, repeat_seconds: float) -> list[Refused]:
    """Note why attempts wait, and return what is to be said: codes that changed at once, numbers every so often."""
    keys = {(refusal.pending.job, refusal.pending.attempt): refusal for refusal in refusals}
    texts = {id(why): why.model_dump_json() for why in {id(one.reason): one.reason for one in refusals}.values()}
    rows = await connection.fetch(
        _REFUSE,
        [job for job, _ in keys],
        [attempt for _, attempt in keys],
        [texts[id(refusal.reason)] for refusal in keys.values()],
        [refusal.final for refusal in keys.values()],
        repeat_seconds,
    )
    return [Refused(keys[row["job"], row["attempt"]], row["refusals"], row["cause"]) for row in rows]


def _version(admitted: tuple[JobAdmitted, int, UUID]) -> int:
    return admitted[1]


def _ended(row: Record) -> Ended:
    return Ended(row["job"], row["attempt"], row["tenant"], row["grants"] > 0, row["refusals"])


def _pending(row: Record) -> Pending:
    return Pending(
        job=row["job"],
        attempt=row["attempt"],
        tenant=row["tenant"],
        name=row["name"],
        queue=row["queue"],
        priority=row["priority"],
        gpu_class=row["gpu_class"],
        demand=_demand(row["demand"]),
        work=_work(row["work"]),
        queued_at=row["queued_at"],
    )


_ADMIT = """
INSERT INTO attempts (job, attempt, state, tenant, name, queue, priority, gpu_class, demand, work, queued_at, cause,
                      version)
SELECT job, attempt, 'Pending', tenant, name, queue, priority, gpu_class, demand::jsonb, work::jsonb, queued_at, cause,
       version
FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[], $8::text[], $9::text[],
            $10::timestamptz[], $11::uuid[], $12::bigint[])
     AS a(job, attempt, tenant, name, queue, priority, gpu_class, demand, work, queued_at, cause, version)
ORDER BY job, attempt
ON CONFLICT (job, attempt) DO UPDATE
SET state = 'Pending', refusal = NULL, name = excluded.name, queue = excluded.queue, priority = excluded.priority,
    gpu_class = excluded.gpu_class, demand = excluded.demand, work = excluded.work, queued_at = excluded.queued_at,
    cause = excluded.cause, version = excluded.version
WHERE attempts.state = 'Refused' AND attempts.grants = 0 AND attempts.version < excluded.version
"""
_REFUSE_AGAIN = """
UPDATE attempts a
SET refusals = a.refusals + 1,
    cause = CASE a.state WHEN 'Refused' THEN k.cause ELSE a.cause END,
    version = CASE a.state WHEN 'Refused' THEN k.version ELSE a.version END
FROM unnest($1::text[], $2::int[], $3::uuid[], $4::bigint[]) AS k(job, attempt, cause, version)
WHERE a.job = k.job AND a.attempt = k.attempt
  AND (a.state = 'Over' AND a.grants = 0 OR a.state = 'Refused' AND a.grants > 0 AND a.version < k.version)
RETURNING a.job, a.attempt, a.tenant, a.grants, a.refusals
"""
_END = """
INSERT INTO attempts AS a (job, attempt, state, tenant, cause, refusals)
SELECT DISTINCT ON (job, attempt) job, attempt, 'Over', tenant, cause, 1
FROM unnest($1::text[], $2::int[], $3::text[], $4::uuid[]) AS o(job, attempt, tenant, cause)
ORDER BY job, attempt
ON CONFLICT (job, attempt) DO UPDATE SET state = 'Over', cause = excluded.cause, refusals = a.refusals + 1
RETURNING a.job, a.attempt, a.tenant, a.grants, a.refusals
"""
_SAID_OF_ENDS = """
SELECT g.id, g.revocation, a.cause, p.state, p.version
FROM attempts a
JOIN unnest($1::text[], $2::int[]) AS k(job, attempt) ON a.job = k.job AND a.attempt = k.attempt
JOIN grants g ON g.job = a.job AND g.attempt = a.attempt AND g.revocation IS NOT NULL
JOIN parts p ON p.grant_id = g.id
"""
_RUN_OVER = "UPDATE grants SET run_over = true WHERE id = ANY($1::text[]) AND NOT run_over"
_ENDS_OF_GRANTS = """
SELECT g.id, g.revocation, p.state, p.version
FROM grants g JOIN parts p ON p.grant_id = g.id
WHERE g.id = ANY($1::text[]) AND g.revocation IS NOT NULL
"""
# an attempt without a cause is one that only a node told of, after the ledger went back: nobody has begun it yet
_END_EARLIER = """
WITH earlier AS (
    SELECT a.job, a.attempt
    FROM attempts a
    WHERE a.job = ANY($1::text[]) AND a.state <> 'Over'
      AND a.attempt < (SELECT max(l.attempt) FROM attempts l WHERE l.job = a.job AND l.cause IS NOT NULL)
    ORDER BY a.job, a.attempt
    FOR UPDATE
)
UPDATE attempts a SET state = 'Over', refusals = a.refusals + 1
FROM earlier e WHERE a.job = e.job AND a.attempt = e.attempt
RETURNING a.job, a.attempt, a.tenant, a.grants, a.refusals
"""
_LIVE_GRANTS = """
SELECT g.id, g.job, g.attempt
FROM grants g JOIN unnest($1::text[], $2::int[]) AS k(job, attempt) ON g.job = k.job AND g.attempt = k.attempt
WHERE g.live
"""
_PENDING = """
SELECT job, attempt, tenant, name, queue, priority, gpu_class, demand, work, queued_at
FROM attempts
WHERE state = 'Pending'
ORDER BY priority DESC, queued_at, job
LIMIT $1
"""
# a rival may have granted or ended it meanwhile; what is said is never older than what it says of itself
_REFUSE = """
WITH told AS (
    SELECT job, attempt, reason::jsonb AS reason, final
    FROM unnest($1::text[], $2::int[], $3::text[], $4::boolean[]) AS r(job, attempt, reason, final)
), chosen AS (
    SELECT a.job, a.attempt, t.reason, t.final
    FROM attempts a JOIN told t ON a.job = t.job AND a.attempt = t.attempt
    WHERE a.state = 'Pending'
      AND (t.final OR a.refusal IS NULL OR a.refusal -> 'code' <> t.reason -> 'code'
           OR (a.refusal <> t.reason AND a.refused_at < now() - make_interval(secs => $5)))
    ORDER BY a.job, a.attempt
    FOR UPDATE OF a SKIP LOCKED
)
UPDATE attempts a
SET refusal = c.reason, refused_at = now(), refusals = a.refusals + 1,
    state = CASE WHEN c.final THEN 'Refused' ELSE 'Pending' END
FROM chosen c
WHERE a.job = c.job AND a.attempt = c.attempt
RETURNING a.job, a.attempt, a.refusals, a.cause
"""
