"""The fleet, its nodes and queues, orders about nodes, the bill, the audit and the stream of events."""

import secrets
from datetime import datetime
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import Response

from libs.client import models as m
from libs.pg.pool import translated
from schemas.base import fact_type
from schemas.calls import AuditPage, AuditQuery
from schemas.fleet import MarkEffect, NodeInfo
from schemas.ids import TenantId, fact_id
from schemas.workload import RequestOrdered
from services.gateway.core.access import Role
from services.gateway.handlers.access import Asker, Gate, Gateway, expect_fleet, tenant_asked
from services.gateway.handlers.events import EventStream, Wanted
from services.gateway.handlers.filters import Filter, Prefix, Tenant
from services.gateway.handlers.jobs import found
from services.gateway.handlers.problems import RESPONSES, ProblemError, conflict, not_found, unavailable
from services.gateway.store import documents
from services.gateway.store import fleet as store

router = APIRouter(tags=["fleet"], responses=RESPONSES)
MAX_PAGE: Final = 1_000
MAX_POSITION: Final = (1 << 63) - 1  # more the store can not count
YEARS: Final = range(1970, 10_000 - 1)  # in any zone
Moment = Annotated[datetime | None, Query(description="With a time zone, such as 2026-01-31T00:00:00Z.")]


@router.get("/v1/fleet")
async def show_fleet(gate: Gate, _: Asker) -> list[m.FleetLine]:
    """Count the devices by cluster and class. What is on silent nodes is neither allocatable nor idle."""
    with translated():
        rows = await store.counts(gate.pool)
    return [
        m.FleetLine(
            cluster=row.cluster,
            gpu_class=row.gpu_class or None,
            total=row.total,
            allocatable=row.allocatable,
            reserved=row.reserved,
            idle=row.idle,
            held=row.held,
            unknown=row.unknown,
        )
        for row in rows
    ]


@router.get("/v1/nodes")
async def list_nodes(
    gate: Gate,
    _: Asker,
    *,
    cluster: Filter | None = None,
    cursor: Annotated[str, Query(max_length=256)] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 200,
) -> m.NodePage:
    """List nodes by cluster and name."""
    with translated():
        rows = await store.nodes(gate.pool, cluster=cluster, reference=None, after=cursor, limit=limit + 1)
    items = tuple(_node(row) for row in rows[:limit])
    following = f"{items[-1].cluster}/{items[-1].name}" if len(rows) > limit else None
    return m.NodePage(items=items, next=following)


@router.post("/v1/nodes/{reference}/orders", status_code=202)
async def order(
    gate: Gate,
    asker: Asker,
    reference: Annotated[str, Path(max_length=64, description="A node's id or name.")],
    wanted: m.NodeOrder,
    cluster: Filter | None = None,
) -> m.OrderAnswer:
    """Take a node out of service (cordon: no new work; drain: and an end to the old) or back into it (uncordon)."""
    expect_fleet(asker, Role.OPERATOR)
    info, owner = await node_named(gate, reference, cluster), wanted.owner or asker.name
    identity = f"order_{secrets.token_hex(16)}"
    fact = RequestOrdered(
        order=wanted.order,
        cluster=info.cluster,
        node=info.node,
        owner=owner,
        reason=wanted.reason,
        session=identity,
    )
    async with gate.service.turn() as turn:
        said = fact_id(fact_type(RequestOrdered), identity, 1)
        kept = documents.NewOrder(identity, wanted.order, info.cluster, info.node, owner, wanted.reason, said)
        await documents.add_order(turn.connection, kept, turn.now)
        turn.emit(fact, scope=info.cluster, key=identity, version=1)
    return m.OrderAnswer(id=identity, order=wanted.order, node=info.node, owner=owner)


async def node_named(gate: Gateway, reference: str, cluster: str | None) -> NodeInfo:
    """Return the node of this id or name; ``cluster``: only there. Raises ProblemError for none, and for several."""
    with translated():
        rows = await store.nodes(gate.pool, cluster=cluster, reference=reference, after="", limit=2)
    if not rows or rows[0].view.info is None:
        raise not_found(f"node {reference}", "see 'triplane nodes' for what there is")
    if len(rows) > 1:
        raise conflict(f"several clusters have a node {reference}", "give the cluster, or the node's id")
    return rows[0].view.info


@router.get("/v1/queues")
async def list_queues(gate: Gate, asker: Asker, tenant: Tenant = None) -> list[m.QueueLine]:
    """Show quota and use of queues by class, and how many jobs wait."""
    with translated():
        rows = await store.queues(gate.pool, tenant_asked(asker, tenant))
    return [
        m.QueueLine(
            tenant=row.tenant,
            queue=row.queue,
            order=row.order,
            preemption=row.preemption,
            gpu_class=row.gpu_class,
            nominal=row.nominal,
            used=row.used,
            waiting=row.waiting,
            admitted=row.running,
            warning=_warning(row),
        )
        for row in rows
    ]


def _warning(row: store.QueueRow) -> str | None:
    if row.nominal <= row.fleet_total:
        return None
    return f"quota {row.nominal} is more than the {row.fleet_total} {row.gpu_class} that exist"


@router.get("/v1/bill")
async def show_bill(
    gate: Gate, asker: Asker, *, tenant: Tenant = None, since: Moment = None, until: Moment = None
) -> list[m.BillLine]:
    """Sum the rated device intervals that ended in [since, until) by account, queue and class."""
    _expect_times(since, until)
    with translated():
        rows = await store.bill(gate.pool, tenant_asked(asker, tenant), since, until)
    return [
        m.BillLine(
            account=row.account,
            queue=row.queue,
            gpu_class=row.gpu_class,
            currency=row.currency,
            device_seconds=row.device_seconds,
            amount_micros=row.amount_micros,
        )
        for row in rows
    ]


@router.get("/v1/audit")
async def query_audit(
    gate: Gate,
    asker: Asker,
    *,
    tenant: Tenant = None,
    entity: Annotated[Filter | None, Query(description="An entity's id.")] = None,
    type_prefix: Prefix | None = None,
    since: Moment = None,
    until: Moment = None,
    after: Annotated[int, Query(ge=0, le=MAX_POSITION)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 200,
    verify: Annotated[bool, Query(description="Check the whole chain of hashes, too.")] = False,
) -> AuditPage:
    """Read the audit: every fact as it was heard, oldest first, in a chain of hashes."""
    _expect_times(since, until)
    wanted = tenant_asked(asker, tenant)
    question = AuditQuery(
        entity=entity,
        type_prefix=type_prefix,
        tenant=TenantId(wanted) if wanted is not None else None,
        since=since,
        until=until,
        after=after,
        limit=limit,
        verify=verify,
    )
    return await gate.ask("call.audit.query", question, AuditPage)


@router.get("/v1/events", response_class=Response, responses={200: {"content": {"text/event-stream": {}}}})
async def follow_events(
    gate: Gate,
    asker: Asker,
    *,
    tenant: Tenant = None,
    job: Annotated[Filter | None, Query(description="A job's id or name.")] = None,
    prefix: Annotated[Prefix | None, Query(alias="type", description="How types begin: workload.job")] = None,
    after: Annotated[
        int | None, Query(ge=0, le=MAX_POSITION, description="Begin behind this event; 0: with the oldest kept.")
    ] = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=MAX_POSITION)] = None,
) -> Response:
    """Follow facts as server-sent events. `Last-Event-ID` resumes behind it; readers that lag too far are cut."""
    shown = tenant_asked(asker, tenant)
    identity = (await found(gate, asker, job, tenant)).job if job is not None else None
    reader = gate.hub.open(Wanted(shown, identity, prefix or ""))
    if reader is None:
        raise unavailable("too many event streams are open")
    begin = last_event_id if last_event_id is not None else after
    settings = gate.settings
    return EventStream(gate.pool, gate.hub, reader, begin, beat=settings.beat_seconds, stuck=settings.stuck_seconds)


def _expect_times(since: datetime | None, until: datetime | None) -> None:
    """Raise the problem of a time that has no zone, that the store can not compare, or that ends before it begins."""
    for name, moment in (("since", since), ("until", until)):
        if moment is None:
            continue
        if moment.tzinfo is None:
            raise ProblemError(422, "bad-input", "the time has no zone", field=name, remedy="end it with Z")
        if moment.year not in YEARS:
            remedy = f"name a year from {YEARS[0]} to {YEARS[-1]}"
            raise ProblemError(422, "bad-input", f"nothing is of the year {moment.year}", field=name, remedy=remedy)
    if since is not None and until is not None and until <= since:
        detail = f"nothing lies from {since.isoformat()} to before {until.isoformat()}"
        raise ProblemError(422, "bad-input", detail, field="until", remedy="name a time after since")


def _node(row: store.NodeRow) -> m.Node:
    view, info = row.view, row.view.info
    assert info is not None, view.node
    return m.Node(
        id=info.node,
        cluster=info.owned_by_name,
        name=info.name,
        devices={name or "-": count for name, count in view.devices_by_class().items()},
        reserved=row.reserved,
        state=_state(row),
        seen_at=view.seen_at,
        place=info.place,
        marks=tuple(
            m.MarkLine(effect=k.effect, owner=k.owner, reason=k.reason, session=k.session, since=k.since)
            for k in info.marks
        ),
        incidents=tuple(
            m.IncidentLine(
                severity=i["severity"], code=i["reason"]["code"], message=i["reason"]["message"], since=i["since"]
            )
            for i in row.incidents
        ),
    )


def _state(row: store.NodeRow) -> Literal["ready", "silent", "unreported", "cordoned", "draining", "drained"]:
    info = row.view.info
    assert info is not None, row.view.node
    if row.view.stale:
        return "silent" if info.reported else "unreported"
    if not info.marks:
        return "ready" if info.reported else "unreported"
    if all(mark.effect is MarkEffect.NO_SCHEDULE for mark in info.marks):
        return "cordoned"
    return "draining" if row.reserved else "drained"
