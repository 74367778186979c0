"""Builders of facts: say what matters to the test, the rest is ordinary."""

from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.base import Envelope, Event, fact_type
from schemas.catalog import BY_EVENT
from schemas.ids import (
    ClusterId,
    GrantId,
    JobId,
    NodeId,
    TenantId,
    cluster_id,
    device_id,
    fact_id,
    grant_id,
    job_id,
    node_id,
    run_name,
)
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import (
    Demand,
    ExitRecord,
    GrantConfirmed,
    GrantedDevice,
    GrantIssued,
    GrantPart,
    GrantRefused,
    GrantReleased,
    GrantRevoked,
    GrantSuspected,
    RankExit,
    ReleaseProof,
    ReplicaSlot,
    RequestApplied,
    RequestSubmitted,
    RequestWithdrawn,
    RunFailed,
    RunSucceeded,
    Work,
)

NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
ACME = TenantId("acme")
DEMO: ClusterId = cluster_id("demo")


def at(seconds: float) -> datetime:
    """Return noon plus so many seconds."""
    return NOON + timedelta(seconds=seconds)


def a_job_id(name: str = "train", tenant: str = "acme", generation: int = 1) -> JobId:
    """Return the id of a job by its name."""
    return job_id(tenant, name, generation)


def a_demand(devices: int = 1, *, replicas: int = 1, classes: tuple[str, ...] = (), **more: Any) -> Demand:
    """Return a gang of replicas with so many devices each."""
    return Demand(classes=classes, replicas=replicas, min_replicas=replicas, devices_per_replica=devices, **more)


def some_work(*command: str, **more: Any) -> Work:
    """Return what a replica runs."""
    return Work(command=command or ("true",), **more)


def a_submission(
    name: str = "train",
    devices: int = 1,
    *,
    tenant: str = "acme",
    queue: str = "main",
    priority: int = 0,
    retries: int = 0,
    demand: Demand | None = None,
    work: Work | None = None,
) -> RequestSubmitted:
    """Return a wish for a job."""
    return RequestSubmitted(
        job=job_id(tenant, name, 1),
        tenant=TenantId(tenant),
        name=name,
        queue=queue,
        priority=priority,
        demand=demand or a_demand(devices),
        work=work or some_work(),
        retries=retries,
        labels={},
        digest="0" * 64,
        submitted_by=f"ada@{tenant}",
    )


def a_withdrawal(name: str = "train", *, tenant: str = "acme") -> RequestWithdrawn:
    """Return the wish to have it no more."""
    return RequestWithdrawn(job=job_id(tenant, name, 1), tenant=TenantId(tenant), withdrawn_by=f"ada@{tenant}")


def a_queue(
    name: str = "main", *, tenant: str = "acme", strict: bool = False, preempts: bool = False, **nominal: int
) -> RequestApplied:
    """Return a queue's declaration: ``a_queue(h100=8)``."""
    quotas = [{"class": gpu_class, "nominal": devices} for gpu_class, devices in (nominal or {"h100": 8}).items()]
    spec: dict[str, Any] = {"order": "StrictFIFO" if strict else "BestEffortFIFO", "quotas": quotas}
    if preempts:
        spec["preemption"] = {"withinQueue": "LowerPriority"}
    document: dict[str, Any] = {
        "apiVersion": "triplane/v1",
        "kind": "Queue",
        "metadata": {"name": name, "tenant": tenant},
        "spec": spec,
    }
    return RequestApplied(kind="Queue", tenant=TenantId(tenant), name=name, document=document, applied_by="ops")


def a_node_id(name: str = "n1") -> NodeId:
    """Return the id of a node of the cluster demo."""
    return node_id(DEMO, name)


def a_part(node: str = "n1", devices: int = 1, *, rank: int = 0, first: int = 0) -> GrantPart:
    """Return one replica on one node with so many devices from an index."""
    place = a_node_id(node)
    granted = tuple(
        GrantedDevice(device=device_id(place, f"GPU-demo-{node}-{index}"), index=index, ordinal=index)
        for index in range(first, first + devices)
    )
    return GrantPart(node=place, node_name=node, replicas=(ReplicaSlot(rank=rank, devices=granted),))


def a_grant_id(name: str = "train", attempt: int = 1, *, tenant: str = "acme") -> GrantId:
    """Return the id of an attempt's grant."""
    return grant_id(job_id(tenant, name, 1), attempt, 1)


def a_grant(
    name: str = "train",
    *parts: GrantPart,
    attempt: int = 1,
    tenant: str = "acme",
    queue: str = "main",
    epoch: int = 1,
    work: Work | None = None,
    issued: datetime = NOON,
) -> GrantIssued:
    """Return an issued grant over these parts (default: one device of n1)."""
    chosen = parts or (a_part(),)
    return GrantIssued(
        grant=a_grant_id(name, attempt, tenant=tenant),
        epoch=epoch,
        job=job_id(tenant, name, 1),
        attempt=attempt,
        tenant=TenantId(tenant),
        name=name,
        queue=queue,
        cluster=DEMO,
        gpu_class="h100",
        world_size=sum(len(part.replicas) for part in chosen),
        parts=chosen,
        work=work or some_work(),
        issued_at=issued,
        start_deadline=issued + timedelta(seconds=60),
    )


def confirmed(
    grant: GrantIssued, part: int = 0, *, when: datetime = NOON, instance: str = "boot-1/1"
) -> GrantConfirmed:
    """Return the claim of one part."""
    held = grant.parts[part]
    return GrantConfirmed(
        grant=grant.grant,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        node=held.node,
        instance=instance,
        boot="boot-1",
        devices=tuple(device.device for device in held.devices),
        claimed_at=when,
    )


def revoked(
    grant: GrantIssued, code: Code = Code.RUN_ENDED, *, when: datetime = NOON, claimed: bool = True
) -> GrantRevoked:
    """Return the revocation of a grant, of which every part was claimed, or none."""
    return GrantRevoked(
        grant=grant.grant,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        reason=reason(Layer.PLACEMENT, code),
        nodes=tuple(part.node for part in grant.parts if claimed),
        revoked_at=when,
    )


def suspected(grant: GrantIssued, code: Code = Code.HEARTBEAT_LOST, *, when: datetime = NOON) -> GrantSuspected:
    """Return the mark on the first part of a grant."""
    return GrantSuspected(
        grant=grant.grant,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        node=grant.parts[0].node,
        reason=reason(Layer.PLACEMENT, code),
        since=when,
    )


def an_exit(*codes: int, instance: str = "boot-1/1", when: datetime = NOON, **more: Any) -> ExitRecord:
    """Return the exit record of a run instance, by rank."""
    ranks = tuple(RankExit(rank=rank, exit_code=code) for rank, code in enumerate(codes or (0,)))
    return ExitRecord(instance=instance, ranks=ranks, started_at=when, ended_at=when, **more)


def released(
    grant: GrantIssued,
    part: int = 0,
    *,
    remaining: int = 0,
    claimed: bool = True,
    when: datetime = NOON,
    record: ExitRecord | None = None,
    alone: bool = False,
    lost: datetime | None = None,
) -> GrantReleased:
    """Return the release of one part; ``alone``: it was revoked before the others, and ``lost`` at that time."""
    held = grant.parts[part]
    return GrantReleased(
        grant=grant.grant,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        queue=grant.queue,
        gpu_class=grant.gpu_class,
        node=held.node,
        devices=tuple(device.device for device in held.devices),
        proof=ReleaseProof.SEAL if claimed else ReleaseProof.NEVER_CLAIMED,
        claimed=claimed,
        exit=record,
        remaining=remaining,
        issued_at=grant.issued_at,
        released_at=when,
        alone=alone,
        lost_at=lost,
    )


def refused(
    name: str = "train", code: Code = Code.CAN_NEVER_FIT, *, attempt: int = 1, final: bool = True
) -> GrantRefused:
    """Return placement's refusal of an attempt."""
    why: Reason = reason(Layer.PLACEMENT, code, asked=64, exist=32)
    return GrantRefused(job=a_job_id(name), attempt=attempt, tenant=ACME, reason=why, final=final)


def succeeded(name: str = "train", attempt: int = 1, *, when: datetime = NOON) -> RunSucceeded:
    """Return a run's good end."""
    job = a_job_id(name)
    return RunSucceeded(
        run=run_name(job, attempt),
        grant=a_grant_id(name, attempt),
        epoch=1,
        job=job,
        attempt=attempt,
        tenant=ACME,
        ended_at=when,
    )


def failed(
    name: str = "train", attempt: int = 1, *, code: Code = Code.NON_ZERO_EXIT_CODE, exit_code: int | None = 1
) -> RunFailed:
    """Return a run's bad end."""
    job = a_job_id(name)
    return RunFailed(
        run=run_name(job, attempt),
        grant=a_grant_id(name, attempt),
        epoch=1,
        job=job,
        attempt=attempt,
        tenant=ACME,
        exit_code=exit_code,
        reason=reason(Layer.DISPATCH, code),
        ended_at=NOON,
    )


def an_envelope(event: Event, *, key: str, version: int = 1, scope: str = "acme") -> Envelope:
    """Return a fact on its way, said by its owner."""
    kind = fact_type(type(event))
    return Envelope(
        id=fact_id(kind, key, version),
        type=kind,
        source=BY_EVENT[type(event)].owner,
        time=NOON,
        scope=scope,
        key=key,
        version=version,
        data=event,
    )
