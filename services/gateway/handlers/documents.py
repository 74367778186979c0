"""POST /v1/documents: many documents, a result for each; the good ones go through beside the bad ones."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.requests import ClientDisconnect

from libs.bus.turn import Turn
from libs.client.models import DocumentResult, DocumentsAnswer
from schemas.base import fact_type
from schemas.ids import JobId, TenantId, fact_id
from schemas.spec import Document
from schemas.spec.job import PRIORITIES, Job
from schemas.spec.parse import DocumentFault, Parsed, parse
from schemas.spec.text import MAX_TEXT_BYTES, TextRefusedError
from schemas.workload import RequestApplied, RequestSubmitted
from services.gateway.core.access import Principal, Role
from services.gateway.core.submission import (
    FLEET_SCOPE,
    Key,
    Known,
    Outcome,
    Standing,
    Verdict,
    content,
    decide,
    digest,
    faults_of,
    key_of,
    with_tenant,
)
from services.gateway.handlers.access import Asker, Gate, expect_role
from services.gateway.handlers.problems import RESPONSES, ProblemError
from services.gateway.store import documents as store

router = APIRouter(tags=["documents"], responses=RESPONSES)
_BODY: Final = {
    "requestBody": {
        "required": True,
        "description": "Documents of kind Job, Queue, GpuClass and Cluster, with --- between them. At most 1 MiB.",
        "content": {"application/yaml": {"schema": {"type": "string"}}, "application/json": {"schema": {}}},
    }
}
_ORDER: Final = {"Cluster": 0, "GpuClass": 1, "Queue": 2, "Job": 3}  # what others refer to comes first


@router.post("/v1/documents", openapi_extra=_BODY)
async def submit(
    request: Request,
    gate: Gate,
    asker: Asker,
    *,
    dry_run: Annotated[bool, Query(description="Check only; keep nothing.")] = False,
    again: Annotated[bool, Query(description="A job that has ended is made anew.")] = False,
) -> DocumentsAnswer:
    """Submit jobs and declare queues, classes and clusters.

    The same job again, while it lives, is `unchanged`; with other content, or when it has ended, it is an error.
    """
    expect_role(asker, Role.SUBMITTER)
    try:
        parsed = await asyncio.to_thread(parse, await bounded_body(request, gate.settings.body_seconds))
    except TextRefusedError as error:
        raise ProblemError(400, "bad-text", error.message, remedy=error.remedy) from error
    if not parsed:
        raise ProblemError(400, "bad-text", "there is no document in the text", remedy="write one")
    tenant = gate.settings.default_tenant if asker.is_fleet_wide else asker.tenant
    good = {p.number: with_tenant(p.document, tenant) for p in parsed if p.document is not None}
    async with gate.service.turn() as turn:
        desk = await _Desk.opened(turn, asker, good, again=again)
        verdicts = {number: desk.take(good[number]) for number in sorted(good, key=lambda n: _place(good[n], n))}
        if not dry_run:
            await desk.close(turn)
    return DocumentsAnswer(dry_run=dry_run, results=tuple(_result(p, good, verdicts) for p in parsed))


async def bounded_body(request: Request, seconds: float) -> bytes:
    """Return the body. Raises the problem of one over 1 MiB, or that takes longer, without reading further."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_TEXT_BYTES:
                    detail = f"the text is over the limit of {MAX_TEXT_BYTES} bytes"
                    raise ProblemError(413, "too-large", detail, remedy="send it in parts")
    except ClientDisconnect as error:  # nobody hears the answer, and nobody failed
        raise ProblemError(400, "cut-off", "the text was cut off", remedy="send it again") from error
    except TimeoutError as error:
        raise ProblemError(408, "too-slow", f"the text did not come within {seconds:.0f} s", remedy="again") from error
    return bytes(body)


def _place(document: Document, number: int) -> tuple[int, int]:
    return _ORDER[document.kind], number


def _result(parsed: Parsed, good: dict[int, Document], verdicts: dict[int, Verdict]) -> DocumentResult:
    document, verdict = good.get(parsed.number), verdicts.get(parsed.number)
    return DocumentResult(
        number=parsed.number,
        line=parsed.line,
        kind=parsed.kind,
        tenant=document.metadata.tenant if document else None,
        name=parsed.name,
        outcome=verdict.outcome.value if verdict else "error",
        id=verdict.id if verdict else None,
        faults=verdict.faults if verdict else parsed.faults,
    )


@dataclass
class _Desk:
    """Takes documents one after the other, each in sight of those before it, and writes all down at the end."""

    asker: Principal
    again: bool
    known: Known
    standings: dict[Key, Standing]
    jobs: list[tuple[Job, store.NewJob]] = field(default_factory=list)
    declared: list[store.NewDeclaration] = field(default_factory=list)

    @classmethod
    async def opened(cls, turn: Turn, asker: Principal, good: dict[int, Document], *, again: bool) -> "_Desk":
        keys = {key_of(document) for document in good.values()}
        await store.hold_keys(turn.connection, keys)
        known = await store.known(turn.connection, {key.tenant for key in keys})
        return cls(asker, again, known, await store.standings(turn.connection, keys))

    def take(self, document: Document) -> Verdict:
        """Decide about one document."""
        faults = _access_faults(self.asker, document) or faults_of(document, self.known)
        if faults:
            return Verdict(Outcome.ERROR, faults=faults)
        key, value = key_of(document), content(document)
        verdict = decide(key, value, self.standings.get(key), again=self.again)
        if verdict.outcome in (Outcome.CREATED, Outcome.CHANGED) and verdict.id is not None:
            self.standings[key] = Standing(verdict.id, verdict.generation, value)
            self._keep(document, store.NewDeclaration(verdict.id, key, verdict.generation, digest(value), value))
        if not isinstance(document, Job):
            self.known = self.known.with_documents([document])
        return verdict

    def _keep(self, document: Document, kept: store.NewDeclaration) -> None:
        if not isinstance(document, Job):
            self.declared.append(kept)
            return
        fact = fact_id(fact_type(RequestSubmitted), kept.id, 1)
        row = store.NewJob(kept.id, kept.key, kept.generation, document.spec.queue, kept.digest, kept.document, fact)
        self.jobs.append((document, row))

    async def close(self, turn: Turn) -> None:
        """Write down what is new and say it."""
        newest = {item.key: item for item in self.declared}
        await store.put_declarations(turn.connection, list(newest.values()), self.asker.name, turn.now)
        await store.add_jobs(turn.connection, [row for _, row in self.jobs], self.asker.name, turn.now)
        for item in self.declared:
            turn.emit(
                _applied(item, self.asker), scope=item.key.tenant or FLEET_SCOPE, key=item.id, version=item.generation
            )
        for job, row in self.jobs:
            turn.emit(_submitted(job, row, self.asker), scope=row.key.tenant, key=row.id, version=1)


def _access_faults(asker: Principal, document: Document) -> tuple[DocumentFault, ...]:
    tenant = document.metadata.tenant
    if not isinstance(document, Job):
        if asker.is_fleet_wide and asker.is_at_least(Role.ADMIN):
            return ()
        message = f"a {document.kind} is declared by fleet-wide admins; token {asker.name} is not one"
        return (DocumentFault(path="kind", message=message, remedy="ask an admin to apply it"),)
    if tenant is not None and not asker.reaches(tenant):
        message = f"token {asker.name} is of tenant {asker.tenant}, not {tenant}"
        return (DocumentFault(path="metadata.tenant", message=message, remedy=f"write {asker.tenant}, or nothing"),)
    return ()


def _applied(item: store.NewDeclaration, asker: Principal) -> RequestApplied:
    return RequestApplied.model_validate(
        {
            "kind": item.key.kind,
            "tenant": item.key.tenant or None,
            "name": item.key.name,
            "document": dict(item.document),
            "applied_by": asker.name,
        }
    )


def _submitted(job: Job, row: store.NewJob, asker: Principal) -> RequestSubmitted:
    return RequestSubmitted(
        job=JobId(row.id),
        tenant=TenantId(row.key.tenant),
        name=row.key.name,
        queue=job.spec.queue,
        priority=PRIORITIES[job.spec.priority_class],
        demand=job.spec.demand(),
        work=job.spec.work(),
        retries=job.spec.retries,
        labels=dict(job.metadata.labels),
        digest=row.digest,
        submitted_by=asker.name,
    )
