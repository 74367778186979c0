"""Builders for the gateway's tests: what admission, inventory and health say about a job and its nodes."""

from collections.abc import Mapping
from datetime import datetime

from schemas.base import Envelope, Event, fact_type
from schemas.catalog import BY_EVENT
from schemas.fleet import DeviceInfo, Mark, MarkEffect, NodeChanged, NodeDiscovered, NodeInfo
from schemas.ids import DrainId, TenantId, UsageId, device_id, fact_id, run_name
from schemas.ledger import UsageLine, UsageRated
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import (
    Demand,
    JobAdmitted,
    JobEvicted,
    JobFinished,
    JobHeld,
    JobQueued,
    JobQuotaReserved,
    JobRequeued,
    Outcome,
    RunStarted,
)
from tests.support.builders import DEMO, NOON, a_demand, a_grant, a_grant_id, a_job_id, a_node_id, a_part, at, some_work


def said(fact: Event, *, key: str, version: int, scope: str = "acme", when: datetime = NOON) -> Envelope:
    """Return a fact in its envelope."""
    kind = fact_type(type(fact))
    return Envelope(fact_id(kind, key, version), kind, BY_EVENT[type(fact)].owner, when, scope, key, version, fact)


def queued(
    name: str = "train", *, tenant: str = "acme", queue: str = "main", demand: Demand | None = None
) -> JobQueued:
    """Return admission's first word."""
    return JobQueued(
        job=a_job_id(name, tenant),
        attempt=1,
        tenant=TenantId(tenant),
        name=name,
        queue=queue,
        priority=0,
        demand=demand or a_demand(),
    )


def reserved(
    name: str = "train", devices: int = 1, *, attempt: int = 1, tenant: str = "acme", gpu_class: str = "h100"
) -> JobQuotaReserved:
    """Return a booked charge."""
    return JobQuotaReserved(
        job=a_job_id(name, tenant),
        attempt=attempt,
        tenant=TenantId(tenant),
        queue="main",
        gpu_class=gpu_class,
        devices=devices,
    )


def admitted(
    name: str = "train", *, attempt: int = 1, tenant: str = "acme", demand: Demand | None = None
) -> JobAdmitted:
    """Return an admission."""
    return JobAdmitted(
        job=a_job_id(name, tenant),
        attempt=attempt,
        tenant=TenantId(tenant),
        name=name,
        queue="main",
        priority=0,
        gpu_class="h100",
        demand=demand or a_demand(),
        work=some_work(),
        queued_at=NOON,
    )


def why(code: Code, message: str = "", layer: Layer = Layer.ADMISSION, **numbers: int) -> Reason:
    """Return a reason."""
    return reason(layer, code, message, **numbers)


def held(
    name: str = "train", code: Code = Code.WAITING_FOR_QUOTA, *, attempt: int = 1, tenant: str = "acme"
) -> JobHeld:
    """Return why a job waits."""
    return JobHeld(job=a_job_id(name, tenant), attempt=attempt, tenant=TenantId(tenant), queue="main", reason=why(code))


def evicted(name: str = "train", code: Code = Code.DRAINED, *, attempt: int = 1) -> JobEvicted:
    """Return the end of an attempt."""
    return JobEvicted(job=a_job_id(name), attempt=attempt, tenant=TenantId("acme"), reason=why(code))


def requeued(name: str = "train", code: Code = Code.DRAINED, *, attempt: int = 2) -> JobRequeued:
    """Return a job's return to its queue."""
    return JobRequeued(
        job=a_job_id(name), attempt=attempt, tenant=TenantId("acme"), queue="main", not_before=at(1), reason=why(code)
    )


def finished(
    name: str = "train",
    outcome: Outcome = Outcome.SUCCEEDED,
    *,
    attempt: int = 1,
    exit_code: int | None = 0,
    tenant: str = "acme",
) -> JobFinished:
    """Return a job's end."""
    return JobFinished(
        job=a_job_id(name, tenant), attempt=attempt, tenant=TenantId(tenant), outcome=outcome, exit_code=exit_code
    )


def started(name: str = "train", *, attempt: int = 1, when: datetime = NOON) -> RunStarted:
    """Return a run's start."""
    job = a_job_id(name)
    return RunStarted(
        run=run_name(job, attempt),
        grant=a_grant_id(name, attempt),
        epoch=1,
        job=job,
        attempt=attempt,
        tenant=TenantId("acme"),
        started_at=when,
    )


def a_node(
    name: str = "n1",
    devices: int = 8,
    *,
    gpu_class: str | None = "h100",
    marks: tuple[Mark, ...] = (),
    stale: bool = False,
    place: Mapping[str, str] | None = None,
) -> NodeInfo:
    """Return a node of the cluster demo that reports."""
    node = a_node_id(name)
    uuids = [f"GPU-demo-{name}-{index}" for index in range(devices)]
    return NodeInfo(
        node=node,
        cluster=DEMO,
        cluster_name="demo",
        name=name,
        place=dict(place or {}),
        devices=tuple(
            DeviceInfo(device=device_id(node, uuid), index=index, uuid=uuid, model="H100", gpu_class=gpu_class)
            for index, uuid in enumerate(uuids)
        ),
        marks=marks,
        reported=True,
        stale=stale,
    )


def a_mark(owner: str = "health", because: str = "Xid 79", *, effect: MarkEffect = MarkEffect.NO_SCHEDULE) -> Mark:
    """Return a hold on a node."""
    return Mark(drain=DrainId("drain_1"), effect=effect, owner=owner, reason=because, session="s1", since=NOON)


def discovered(info: NodeInfo, version: int = 1) -> Envelope:
    """Return a node's first fact."""
    return said(NodeDiscovered(info=info), key=info.node, version=version, scope=info.cluster)


def changed(info: NodeInfo, version: int) -> Envelope:
    """Return a node's later fact."""
    return said(NodeChanged(info=info), key=info.node, version=version, scope=info.cluster)


def rated(account: str, *, amount: int = 2_500_000, usage: str = "usage_1") -> UsageRated:
    """Return an hour of four devices of node n1."""
    grant = a_grant("train", a_part("n1", 4))
    return UsageRated(
        usage=UsageId(usage),
        grant=grant.grant,
        job=a_job_id(),
        attempt=1,
        tenant=TenantId("acme"),
        account=account,
        queue="main",
        gpu_class="h100",
        node=a_node_id(),
        currency="USD",
        lines=tuple(
            UsageLine(
                device=device.device,
                started_at=NOON,
                ended_at=at(3_600),
                price_micros_per_hour=2_500_000,
                amount_micros=amount,
            )
            for device in grant.parts[0].devices
        ),
    )
