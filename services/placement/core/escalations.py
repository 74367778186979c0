"""What is not known of devices, told so that a person can settle it. Nothing here frees a device."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from schemas.calls import Escalation, Subject
from schemas.ids import ClusterId, DeviceId, GrantId, JobId, NodeId, TenantId
from schemas.lifecycle import DeviceState, PartState
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import DriftKind
from services.placement.core.drift import HEALS
from services.placement.core.recovery import Forgotten

_LAYER = Layer.PLACEMENT


@dataclass(frozen=True, slots=True)
class PartEvidence:
    """A part of a grant and its node, as the ledger knows them. ``silent``: the node is past its time."""

    grant: GrantId
    epoch: int
    tenant: TenantId
    job: JobId
    job_name: str
    attempt: int
    cluster: ClusterId
    node: NodeId
    node_name: str
    state: PartState
    devices: tuple[DeviceId, ...]
    indexes: tuple[int, ...]
    boot: str | None
    instance: str | None
    claimed_at: datetime | None
    revoked_at: datetime | None
    released_at: datetime | None
    suspected_at: datetime | None
    escalated_at: datetime | None
    seal_note: str | None
    seal_asks: int
    heard_at: datetime | None
    silent: bool
    blind: bool
    person: str | None


def seen_by(found: Iterable[Escalation], tenant: TenantId | None) -> tuple[Escalation, ...]:
    """Return what a tenant may see: what its own attempts hold (None: all)."""
    return tuple(each for each in found if tenant is None or each.tenant == tenant)


def of_part(part: PartEvidence) -> Escalation:
    """Return what is not known of a part's devices, and whether anything but a person will settle it."""
    state, why, since = _judged(part)
    return Escalation(
        subject=Subject.PART,
        state=state,
        reason=why,
        since=since,
        waits_for_person=part.escalated_at is not None and part.state is PartState.REVOKING,
        cluster=part.cluster,
        node=part.node,
        node_name=part.node_name,
        devices=part.devices,
        indexes=part.indexes,
        tenant=part.tenant,
        job=part.job,
        job_name=part.job_name,
        attempt=part.attempt,
        grant=part.grant,
        epoch=part.epoch,
        part=part.state,
        claimed_at=part.claimed_at,
        revoked_at=part.revoked_at,
        boot=part.boot,
        instance=part.instance,
        heard_at=part.heard_at,
        seal=Code(part.seal_note) if part.seal_note else None,
        seals_asked=part.seal_asks,
    )


def untaken(run: Forgotten, *, since: datetime, heard_at: datetime | None, silent: bool) -> Escalation:
    """Return that a node runs what the ledger has no part for, and keeps its devices until a seal or another boot."""
    order = run.order
    told = "the ledger went back behind it, and has no part for it; it ends by a seal once the stop is lifted"
    return Escalation(
        subject=Subject.PART,
        state=DeviceState.SUSPECT if silent else DeviceState.RELEASING,
        reason=reason(_LAYER, Code.LEDGER_BEHIND, told),
        since=since,
        waits_for_person=False,
        cluster=run.cluster,
        node=run.node,
        node_name=run.node_name,
        devices=run.devices,
        indexes=tuple(device.index for replica in order.replicas for device in replica.devices),
        tenant=order.tenant,
        job=order.job,
        job_name=order.name,
        attempt=order.attempt,
        grant=order.grant,
        epoch=order.epoch,
        boot=run.boot,
        instance=run.instance,
        heard_at=heard_at,
    )


def blind_node(
    *, cluster: ClusterId, node: NodeId, name: str, why: str | None, since: datetime, heard_at: datetime | None
) -> Escalation:
    """Return that a node takes no claim and gives no seal (G6)."""
    return Escalation(
        subject=Subject.NODE,
        state=DeviceState.SUSPECT,
        reason=reason(Layer.NODE, Code.NODE_BLIND, why or ""),
        since=since,
        waits_for_person=True,
        cluster=cluster,
        node=node,
        node_name=name,
        heard_at=heard_at,
    )


def stranger(
    *, cluster: ClusterId, node: NodeId, name: str, device: DeviceId, index: int, user: str | None, since: datetime
) -> Escalation:
    """Return that a process of no grant uses a device."""
    return Escalation(
        subject=Subject.DEVICE,
        state=DeviceState.SUSPECT,
        reason=reason(Layer.NODE, Code.UNMANAGED_USE, f"{user or 'a process'} uses it outside every grant"),
        since=since,
        waits_for_person=True,
        cluster=cluster,
        node=node,
        node_name=name,
        devices=(device,),
        indexes=(index,),
    )


def stop(device: str, lease_epoch: int, ledger_epoch: int, *, since: datetime) -> Escalation:
    """Return that the ledger went back, so that nothing new is granted (L5, R12)."""
    what = "the ledger was restored from a backup" if device == "*" else f"the lease of {device} is newer"
    return Escalation(
        subject=Subject.LEDGER,
        state=DeviceState.SUSPECT,
        reason=reason(
            _LAYER, Code.LEDGER_BEHIND, f"no new grants: {what}", lease_epoch=lease_epoch, ledger_epoch=ledger_epoch
        ),
        since=since,
        waits_for_person=True,
    )


def drift(
    *, kind: str, subject: str, node: NodeId | None, name: str | None, found_at: datetime, since: datetime
) -> Escalation:
    """Return that two records differ for longer than facts are on their way."""
    of = DriftKind(kind)
    told = "it heals by itself" if of in HEALS else "a person must look"
    return Escalation(
        subject=Subject.DRIFT,
        state=DeviceState.SUSPECT,
        reason=reason(_LAYER, Code.RECORDS_DIFFER, f"{kind} {subject}, seen to last at {found_at:%H:%M:%S}; {told}"),
        since=since,
        waits_for_person=of not in HEALS,
        node=node,
        node_name=name,
    )


def _judged(part: PartEvidence) -> tuple[DeviceState, Reason, datetime]:
    if part.state is PartState.RELEASED:
        assert part.released_at is not None, part
        text = f"released on the word of {part.person}; its node has not shown it clear yet"
        return DeviceState.SUSPECT, reason(_LAYER, Code.OVERRIDDEN, text), part.released_at
    since = part.suspected_at or part.revoked_at or part.claimed_at
    assert since is not None, part
    if part.escalated_at is not None and part.silent:
        text = "the node is silent for too long; what runs there is not known"
        return DeviceState.LOST, reason(Layer.FLEET, Code.NODE_LOST, text), since
    if part.blind:
        text = "the node cannot tell what runs on it"
        return DeviceState.SUSPECT, reason(Layer.NODE, Code.NODE_BLIND, text), since
    if part.escalated_at is not None:
        text = "the node answers, but gives no proof of release"
        return DeviceState.QUARANTINED, reason(_LAYER, Code.STUCK_TERMINATION, text), since
    if part.suspected_at is not None:
        text = "the node is silent; work there goes on unseen"
        return DeviceState.SUSPECT, reason(Layer.FLEET, Code.HEARTBEAT_LOST, text), since
    code = Code(part.seal_note) if part.seal_note else Code.UNKNOWN
    return DeviceState.RELEASING, reason(Layer.NODE, code, "the proof of release was refused"), since
