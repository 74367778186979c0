"""The claim: the ledger's answer to the question that every start asks (R2, R3)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from schemas.calls import Claim, ClaimAnswer, Hello, HolderVerdict, Verdict
from schemas.ids import ClusterId, DeviceId, GrantId, NodeId
from schemas.lifecycle import PartState
from schemas.reasons import Code, Layer, reason
from schemas.workload import GrantedDevice, ReplicaSlot
from services.placement.core.grant import Grant, Part, Step, confirm


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """A device of the claiming node as the ledger knows it; ``grant`` has the live line on it, or a move's hold has.

    ``occupied``: something runs there that the ledger has no part for (R12).
    """

    slot: GrantedDevice
    node: NodeId
    gpu_class: str | None
    owner: ClusterId
    grant: GrantId | None
    owner_epoch: int = 1
    occupied: bool = False


@dataclass(frozen=True, slots=True)
class NodeState:
    """What the claim is held against: the node's devices and the boots that have ended."""

    devices: Mapping[DeviceId, NodeDevice]
    ended: Collection[str]


def answer(grant: Grant | None, claim: Claim, node: NodeState, *, now: datetime) -> tuple[Step | None, ClaimAnswer]:
    """Return what the claim makes of the grant (None: nothing) and the answer to give after the commit."""
    part = grant.part(claim.node) if grant and grant.epoch == claim.epoch else None
    if grant is None or part is None:
        return None, _no(claim, Code.GRANT_UNKNOWN)
    if part.state is PartState.CLAIMED and (part.instance, part.boot) == (claim.instance, claim.boot):
        return None, _yes(claim) if claim.boot not in node.ended else _no(claim, Code.BOOT_ENDED)
    code = _obstacle(grant, part, claim, node)
    replicas = None if code else rebound(grant, part, claim.devices, node.devices)
    if replicas is None:
        return None, _no(claim, code or Code.DEVICE_MISMATCH)
    step = confirm(grant, claim.node, instance=claim.instance, boot=claim.boot, replicas=replicas, now=now)
    return step, _yes(claim)


def rebound(
    grant: Grant, part: Part, seen: tuple[DeviceId, ...], devices: Mapping[DeviceId, NodeDevice]
) -> tuple[ReplicaSlot, ...] | None:
    """Return the part's replicas on the devices that the process will really see; None: the ledger cannot follow.

    The same devices stay as they are. Others must be of this node and class, and free or the grant's own.
    """
    if set(seen) == set(part.device_ids):
        return part.replicas
    if len(set(seen)) != len(part.devices) or not all(_may_hold(grant, part, devices.get(device)) for device in seen):
        return None
    slots = iter(sorted((devices[device].slot for device in seen), key=lambda slot: slot.index))
    return tuple(
        ReplicaSlot(rank=replica.rank, devices=tuple(next(slots) for _ in replica.devices)) for replica in part.replicas
    )


def verdicts(hello: Hello, grants: Mapping[GrantId, Grant]) -> tuple[HolderVerdict, ...]:
    """Return the ledger's word on each holder (G7): only a grant that it holds as over is a reason to stop."""
    return tuple(
        HolderVerdict(grant=holder.grant, verdict=_verdict(hello, grants.get(holder.grant), holder.epoch))
        for holder in hello.holders
    )


def _verdict(hello: Hello, grant: Grant | None, epoch: int) -> Verdict:
    part = grant.part(hello.node) if grant and grant.epoch == epoch else None
    if part is None:
        return Verdict.UNKNOWN
    over = part.state in {PartState.REVOKING, PartState.RELEASED}
    return Verdict.STOP if over else Verdict.KEEP


def _obstacle(grant: Grant, part: Part, claim: Claim, node: NodeState) -> Code | None:
    """Why this start may not be, whatever devices it sees."""
    if part.state in {PartState.REVOKING, PartState.RELEASED}:
        return Code.GRANT_OVER
    if claim.boot in node.ended:
        return Code.BOOT_ENDED
    if part.state is PartState.CLAIMED:
        return Code.ALREADY_STARTED
    owned = {None, (grant.cluster, part.owner_epoch)}  # M5
    foreign = any(_owner(node, device) not in owned for device in claim.devices)
    return Code.NOT_OWNER if foreign or claim.cluster != grant.cluster else None


def _may_hold(grant: Grant, part: Part, device: NodeDevice | None) -> bool:
    return (
        device is not None
        and device.node == part.node
        and device.gpu_class == grant.gpu_class
        and device.grant in {None, grant.id}
        and not device.occupied
    )


def _owner(node: NodeState, device: DeviceId) -> tuple[ClusterId, int] | None:
    found = node.devices.get(device)
    return (found.owner, found.owner_epoch) if found else None


def _yes(claim: Claim) -> ClaimAnswer:
    return ClaimAnswer(grant=claim.grant, nonce=claim.nonce, granted=True)


def _no(claim: Claim, code: Code) -> ClaimAnswer:
    return ClaimAnswer(grant=claim.grant, nonce=claim.nonce, granted=False, reason=reason(Layer.PLACEMENT, code))
