"""Dispatch's memory in Postgres: one row a run, its parts inside, since they are only ever read together."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from asyncpg import Record
from pydantic import TypeAdapter

from libs.pg.pool import Connection
from libs.remembered import remembered
from schemas.base import Envelope
from schemas.calls import OpenRun
from schemas.codec import as_said, decode
from schemas.ids import ClusterId, GrantId, JobId, RunName, TenantId
from schemas.lifecycle import RunState
from schemas.reasons import Reason
from schemas.workload import Work
from services.dispatch.core import Part, Run, View

_work, _reason = remembered(Work), remembered(Reason)
PARTS: Final = TypeAdapter(tuple[Part, ...])

LOAD = """
    SELECT grant_id, run, job, attempt, epoch, tenant, job_name, queue, cluster, world_size, work, start_deadline,
           parts, state, version, revoked, answered, tries, due_at, fact
    FROM runs WHERE grant_id = ANY($1) ORDER BY grant_id FOR UPDATE
"""
DUE = """
    SELECT grant_id, run, job, attempt, epoch, tenant, job_name, queue, cluster, world_size, work, start_deadline,
           parts, state, version, revoked, answered, tries, due_at, fact
    FROM runs WHERE NOT settled AND (
        due_at IS NULL OR due_at <= $1 OR due_at > $1 + interval '1 minute'  -- as Run.is_due
    ) AND (
        revoked IS NOT NULL OR state IN ('Launching', 'Launched'))
    ORDER BY due_at NULLS FIRST LIMIT $2
"""
TO_LOOK_AT = """
    UPDATE runs SET looked_at = $1 WHERE grant_id IN (
        SELECT grant_id FROM runs WHERE NOT settled AND looked_at <= $2 ORDER BY looked_at LIMIT $3
        FOR UPDATE SKIP LOCKED
    )
    RETURNING grant_id, run, job, attempt, epoch, tenant, job_name, queue, cluster, world_size, work, start_deadline,
              parts, state, version, revoked, answered, tries, due_at, fact
"""
SAVE = """
    INSERT INTO runs (grant_id, run, job, attempt, epoch, tenant, job_name, queue, cluster, world_size, work,
                      start_deadline, parts, state, version, revoked, answered, tries, due_at, fact, settled)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::text[], $7::text[],
                         $8::text[], $9::text[], $10::int[], $11::jsonb[], $12::timestamptz[], $13::jsonb[],
                         $14::text[], $15::int[], $16::jsonb[], $17::bool[], $18::int[], $19::timestamptz[],
                         $20::uuid[], $21::bool[])
    ON CONFLICT (grant_id) DO UPDATE
    SET parts = excluded.parts, state = excluded.state, version = excluded.version, revoked = excluded.revoked,
        answered = excluded.answered, tries = excluded.tries, due_at = excluded.due_at, fact = excluded.fact,
        settled = excluded.settled,
        changed_at = CASE WHEN runs.state <> excluded.state THEN now() ELSE runs.changed_at END
"""
CHANGE = """
    UPDATE runs SET parts = c.parts, state = c.state, version = c.version, revoked = c.revoked, answered = c.answered,
                    tries = c.tries, due_at = c.due_at, fact = c.fact, settled = c.settled,
                    changed_at = CASE WHEN runs.state <> c.state THEN now() ELSE runs.changed_at END
    FROM unnest($1::text[], $2::jsonb[], $3::text[], $4::int[], $5::jsonb[], $6::bool[], $7::int[], $8::timestamptz[],
                $9::uuid[], $10::bool[])
         AS c(grant_id, parts, state, version, revoked, answered, tries, due_at, fact, settled)
    WHERE runs.grant_id = c.grant_id
"""
EARLY = "DELETE FROM early WHERE grant_id = ANY($1) RETURNING grant_id, position, fact"
KEEP_EARLY = "INSERT INTO early (grant_id, fact) SELECT * FROM unnest($1::text[], $2::bytea[])"
UNANSWERED = """
    SELECT fact FROM runs
    WHERE NOT settled AND state IN ('Succeeded', 'Failed', 'Stopped', 'Lost') AND changed_at <= $1
    ORDER BY changed_at LIMIT 1000
"""
RESULTS = """
    SELECT fact FROM runs WHERE grant_id = ANY($1) AND state IN ('Succeeded', 'Failed', 'Stopped', 'Lost')
"""
OPEN_NOW = "SELECT state, count(*)::int AS runs FROM runs WHERE NOT settled GROUP BY state"

OPEN_PAGE = "SELECT grant_id, run, state FROM runs WHERE NOT settled AND grant_id > $1 ORDER BY grant_id LIMIT $2"


async def open_page(connection: Connection, after: str, limit: int) -> list[OpenRun]:
    """Return runs that are not settled, behind one of them, by grant."""
    rows = await connection.fetch(OPEN_PAGE, after, limit)
    return [OpenRun(grant=row["grant_id"], run=row["run"], state=RunState(row["state"])) for row in rows]


async def open_runs(connection: Connection) -> dict[tuple[str, ...], int]:
    """Count the runs that are not settled, by state."""
    return {(row["state"],): row["runs"] for row in await connection.fetch(OPEN_NOW)}


async def load(connection: Connection, grants: Collection[GrantId]) -> View:
    """Lock and return these runs, as far as they are known."""
    rows = await connection.fetch(LOAD, sorted(set(grants)))
    return View({run.grant: run for run in map(_run, rows)})


async def due(connection: Connection, now: datetime, limit: int) -> list[Run]:
    """Return runs of which something is to be asked of their destination now."""
    return [_run(row) for row in await connection.fetch(DUE, now, limit)]


async def to_look_at(connection: Connection, now: datetime, *, seconds: float, limit: int) -> list[Run]:
    """Return open runs that nobody looked at for so long, and note that it is done now."""
    return [_run(row) for row in await connection.fetch(TO_LOOK_AT, now, now - timedelta(seconds=seconds), limit)]


async def save(connection: Connection, before: View, after: View) -> None:
    """Write the runs that changed between two views."""
    new = [run for grant, run in after.runs.items() if grant not in before.runs]
    if new:
        await connection.execute(SAVE, *_columns(map(_row, new)))
    changed = [run for grant, run in after.runs.items() if grant in before.runs and before.runs[grant] is not run]
    if changed:
        await connection.execute(CHANGE, *_columns((run.grant, *_changing(run)) for run in changed))


async def take_early(connection: Connection, grants: Collection[GrantId]) -> list[tuple[GrantId, Envelope]]:
    """Return, and forget, what was heard of grants before they were known, in order."""
    rows = await connection.fetch(EARLY, sorted(set(grants)))
    return [(GrantId(row["grant_id"]), decode(row["fact"])) for row in sorted(rows, key=lambda row: row["position"])]


async def keep_early(connection: Connection, facts: Sequence[tuple[GrantId, Envelope]]) -> None:
    """Keep facts about grants that are not known yet (R9): a first word must not be forgotten."""
    if facts:
        await connection.execute(KEEP_EARLY, [grant for grant, _ in facts], [as_said(fact) for _, fact in facts])


async def unanswered(connection: Connection, now: datetime, *, seconds: float) -> list[UUID]:
    """Return the results of runs that were not settled for so long: the ledger's last word on them was not heard."""
    return [row["fact"] for row in await connection.fetch(UNANSWERED, now - timedelta(seconds=seconds))]


async def results(connection: Connection, grants: Collection[GrantId]) -> list[UUID]:
    """Return the results that were said of these grants' runs."""
    return [row["fact"] for row in await connection.fetch(RESULTS, sorted(set(grants)))]


def _columns(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _run(row: Record) -> Run:
    return Run(
        name=RunName(row["run"]),
        grant=GrantId(row["grant_id"]),
        epoch=row["epoch"],
        job=JobId(row["job"]),
        attempt=row["attempt"],
        tenant=TenantId(row["tenant"]),
        job_name=row["job_name"],
        queue=row["queue"],
        cluster=ClusterId(row["cluster"]),
        world_size=row["world_size"],
        work=_work(row["work"]),
        start_deadline=row["start_deadline"],
        parts=PARTS.validate_json(row["parts"]),
        state=RunState(row["state"]),
        version=row["version"],
        revoked=_reason(row["revoked"]) if row["revoked"] else None,
        answered=row["answered"],
        tries=row["tries"],
        due_at=row["due_at"],
        fact=row["fact"],
    )


def _row(run: Run) -> tuple[Any, ...]:
    return (
        run.grant,
        run.name,
        run.job,
        run.attempt,
        run.epoch,
        run.tenant,
        run.job_name,
        run.queue,
        run.cluster,
        run.world_size,
        run.work.model_dump_json(),
        run.start_deadline,
        *_changing(run),
    )


def _changing(run: Run) -> tuple[Any, ...]:
    return (
        PARTS.dump_json(run.parts).decode(),
        run.state.value,
        run.version,
        run.revoked.model_dump_json() if run.revoked else None,
        run.answered,
        run.tries,
        run.due_at,
        run.fact,
        run.settled,
    )
