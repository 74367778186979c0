"""Jobs: lists, one job, why it waits, its output, and wishing it away."""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query

from libs.client import models as m
from libs.pg.pool import translated
from schemas.base import fact_type
from schemas.calls import Logs, LogsAnswer
from schemas.ids import JobId, TenantId, fact_id, is_token, run_name
from schemas.lifecycle import JobState
from schemas.spec.job import Job as JobDocument
from schemas.trace import trace_of
from schemas.workload import RequestWithdrawn
from services.gateway.core.access import Principal, Role
from services.gateway.core.explain import explain
from services.gateway.core.job import MAX_HISTORY, HistoryEntry, Placement
from services.gateway.core.trace import phases, steps
from services.gateway.handlers.access import Asker, Gate, Gateway, expect_role, tenant_asked
from services.gateway.handlers.filters import Filter, Tenant
from services.gateway.handlers.problems import RESPONSES, ProblemError, conflict, not_found
from services.gateway.store import documents
from services.gateway.store import jobs as store

router = APIRouter(tags=["jobs"], responses=RESPONSES)
MAX_PAGE: Final = 1_000
MAX_FACTS: Final = 1_000  # of one trace
Reference = Annotated[str, Path(max_length=64, description="A job's id, or the name of the newest job called so.")]


@router.get("/v1/jobs")
async def list_jobs(
    gate: Gate,
    asker: Asker,
    *,
    tenant: Tenant = None,
    queue: Filter | None = None,
    state: JobState | None = None,
    name: Filter | None = None,
    cursor: Annotated[str | None, Query(max_length=256)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> m.JobPage:
    """List jobs, newest first."""
    wanted = store.Filter(tenant_asked(asker, tenant), queue, state, name)
    with translated():
        rows = await store.page(gate.pool, wanted, _place(cursor), limit + 1)
    more = len(rows) > limit
    following = _cursor(rows[limit - 1]) if more else None
    return m.JobPage(items=tuple(job_of(row) for row in rows[:limit]), next=following)


@router.get("/v1/jobs/{reference}")
async def get_job(gate: Gate, asker: Asker, reference: Reference, tenant: Tenant = None) -> m.JobDetail:
    """Show a job with all that is known of it."""
    row = await found(gate, asker, reference, tenant)
    said = row.view.said
    return m.JobDetail(
        **job_of(row).model_dump(),
        document=row.document,
        said=said.reason if said else None,
        run_reason=row.view.run.reason if row.view.run else None,
    )


@router.get("/v1/jobs/{reference}/explain")
async def explain_job(gate: Gate, asker: Asker, reference: Reference, tenant: Tenant = None) -> m.Explanation:
    """Say why a job is where it is, with numbers counted now."""
    row = await found(gate, asker, reference, tenant)
    demand = JobDocument.model_validate(row.document).spec.demand()
    with translated():
        quotas = await store.quotas(gate.pool, row.tenant, row.queue, demand.classes)
        classes = demand.classes or tuple(line.gpu_class for line in quotas)
        fleet = await store.capacities(gate.pool, demand, classes)
        history = await store.history(gate.pool, row.job, MAX_HISTORY)
    told = explain(row.view, demand, quotas, fleet)
    return m.Explanation(
        id=row.job,
        tenant=row.tenant,
        name=row.name,
        state=row.view.state,
        attempt=row.view.attempt,
        code=told.code,
        message=told.message,
        numbers=told.numbers,
        since=told.since or row.submitted_at,
        retry_after_seconds=told.retry_after_seconds,
        history=_lines(history),
    )


@router.get("/v1/jobs/{reference}/trace")
async def trace_job(gate: Gate, asker: Asker, reference: Reference, tenant: Tenant = None) -> m.JobTrace:
    """Show a job's life fact by fact: who said it, what it answered and how long that took; and where the time went."""
    row = await found(gate, asker, reference, tenant)
    with translated():
        facts = await store.facts(gate.pool, row.job, MAX_FACTS)
    return m.JobTrace(
        id=row.job,
        tenant=row.tenant,
        name=row.name,
        state=row.view.state,
        attempt=row.view.attempt,
        trace=trace_of(JobId(row.job)),
        cut=len(facts) >= MAX_FACTS,
        steps=tuple(m.TraceStep.model_validate(step.model_dump()) for step in steps(facts)),
        phases=tuple(m.TracePhase.model_validate(phase.model_dump()) for phase in phases(facts, datetime.now(UTC))),
    )


@router.delete("/v1/jobs/{reference}")
async def withdraw(
    gate: Gate,
    asker: Asker,
    reference: Reference,
    *,
    tenant: Tenant = None,
    message: Annotated[str, Query(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$", description="Why.")] = "",
) -> m.Job:
    """Wish a job away: it is cancelled, and its processes get their grace. Again changes nothing."""
    expect_role(asker, Role.SUBMITTER)
    row = await found(gate, asker, reference, tenant)
    if row.view.life.ended and row.view.state is not JobState.CANCELLED:
        raise conflict(f"job {row.name} has ended: {row.view.state}", "there is nothing left to cancel")
    fact = RequestWithdrawn(job=JobId(row.job), tenant=TenantId(row.tenant), withdrawn_by=asker.name, message=message)
    async with gate.service.turn() as turn:
        identity = fact_id(fact_type(RequestWithdrawn), row.job, 2)
        if await documents.withdraw(turn.connection, row.job, identity, asker.name, turn.now):
            turn.emit(fact, scope=row.tenant, key=row.job, version=2)
    return job_of(await found(gate, asker, row.job, row.tenant))


@router.get("/v1/jobs/{reference}/logs")
async def read_logs(
    gate: Gate,
    asker: Asker,
    reference: Reference,
    *,
    tenant: Tenant = None,
    rank: Annotated[int, Query(ge=0)] = 0,
    attempt: Annotated[int | None, Query(ge=1, description="The newest one that was granted, if left out.")] = None,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=262_144)] = 65_536,
) -> m.LogPiece:
    """Read a piece of a replica's output. Follow it by asking again from `next_offset` until it `ended`."""
    row = await found(gate, asker, reference, tenant)
    granted = row.view.placements
    placement = next((each for each in granted if attempt in {None, each.attempt}), None)
    if placement is None:
        if attempt is not None and granted:
            known = ", ".join(str(each.attempt) for each in granted)
            raise not_found(f"attempt {attempt} with output", f"there is output of: {known}")
        return m.LogPiece(
            attempt=row.view.attempt, rank=rank, known=False, text="", next_offset=0, ended=row.view.life.ended
        )
    question = Logs(run=run_name(JobId(row.job), placement.attempt), rank=rank, offset=offset, limit=limit)
    answer = await gate.ask(f"call.node.{_node_of(placement, rank)}.logs", question, LogsAnswer)
    is_over = row.view.life.ended or row.view.attempt > placement.attempt
    return m.LogPiece(
        attempt=placement.attempt,
        rank=rank,
        known=answer.known,
        text=answer.text,
        next_offset=answer.next_offset,
        ended=answer.ended if answer.known else is_over,
    )


async def found(gate: Gateway, asker: Principal, reference: str, tenant: str | None) -> store.JobRow:
    """Return the job that is meant. Raises the problem of none, or of more than one."""
    with translated():
        rows = await store.find(gate.pool, reference, tenant_asked(asker, tenant))
    if not rows:
        raise not_found(f"job {reference}", "see 'triplane jobs' for what there is")
    if len(rows) > 1:
        tenants = ", ".join(row.tenant for row in rows)
        raise conflict(f"several tenants have a job {reference}: {tenants}", "give the tenant, or the job's id")
    return rows[0]


def _node_of(placement: Placement, rank: int) -> str:
    for place in placement.places:
        if rank in place.ranks:
            return place.node
    raise ProblemError(
        404, "not-found", f"there is no rank {rank}", remedy=f"ranks are 0 to {placement.world_size - 1}"
    )


def job_of(row: store.JobRow) -> m.Job:
    """Return a job as it stands."""
    view, spec = row.view, JobDocument.model_validate(row.document).spec
    placement = view.placement if view.placement and view.placement.attempt == view.attempt else None
    charge = view.charge if view.charge and view.charge.attempt == view.attempt else None
    said = view.said
    return m.Job(
        id=row.job,
        tenant=row.tenant,
        name=row.name,
        generation=row.generation,
        queue=row.queue,
        state=view.state,
        attempt=view.attempt,
        ended=view.life.ended,
        devices=spec.replicas * spec.devices_per_replica,
        replicas=spec.replicas,
        gpu_class=placement.gpu_class if placement else charge.gpu_class if charge else None,
        nodes=tuple(place.node_name for place in placement.places) if placement else (),
        reason=said.reason.code if said and said.reason else None,
        submitted_by=row.submitted_by,
        submitted_at=row.submitted_at,
        withdrawn_at=row.withdrawn_at,
        started_at=view.started.at if view.started else None,
        ended_at=view.end.at if view.end else None,
        exit_code=view.exit_code,
    )


def _lines(history: Sequence[HistoryEntry]) -> tuple[m.HistoryLine, ...]:
    return tuple(
        m.HistoryLine(
            at=entry.at,
            attempt=entry.attempt,
            type=entry.type,
            code=entry.reason.code if entry.reason else None,
            message=entry.reason.message if entry.reason else entry.note,
            numbers=entry.reason.numbers if entry.reason else {},
        )
        for entry in history
    )


def _cursor(row: store.JobRow) -> str:
    return base64.urlsafe_b64encode(f"{row.submitted_at.isoformat()} {row.job}".encode()).decode()


def _place(cursor: str | None) -> tuple[datetime, str] | None:
    if cursor is None:
        return None
    try:
        at, _, job = base64.urlsafe_b64decode(cursor).decode().partition(" ")
        moment = datetime.fromisoformat(at).astimezone(UTC)
    except (binascii.Error, ValueError, OverflowError) as error:
        raise _no_cursor() from error
    if not is_token(job):
        raise _no_cursor()
    return moment, job


def _no_cursor() -> ProblemError:
    return ProblemError(422, "bad-input", "this is no cursor", field="cursor", remedy="give back `next`")
