"""The life of a grant: each step returns the grant after it and the facts to say, or the same grant and none.

Before the claim the ledger alone may end a part; after the claim only proof may. Parts go down Issued, Claimed,
Revoking, Released and never back.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from schemas.base import Event
from schemas.calls import SealAnswer
from schemas.ids import ClusterId, DeviceId, GrantId, JobId, NodeId, RunName, TenantId, run_name
from schemas.lifecycle import PART_LIFE, PartState, may
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import (
    ExitRecord,
    GrantCleared,
    GrantConfirmed,
    GrantedDevice,
    GrantIssued,
    GrantOverridden,
    GrantPart,
    GrantReleased,
    GrantRevoked,
    GrantSuspected,
    ReleaseProof,
    ReplicaSlot,
    Work,
)


@dataclass(frozen=True, slots=True)
class Part:
    """Grant x node: the unit that is claimed and released."""

    node: NodeId
    node_name: str
    replicas: tuple[ReplicaSlot, ...]
    state: PartState = PartState.ISSUED
    instance: str | None = None
    boot: str | None = None
    claimed_at: datetime | None = None
    released_at: datetime | None = None
    proof: ReleaseProof | None = None
    exit: ExitRecord | None = None
    suspected_at: datetime | None = None
    escalated_at: datetime | None = None
    version: int = 0  # of the last fact said of this part
    owner_epoch: int = 1  # of the node, when the part was issued
    revocation: int | None = None  # of a part that was revoked alone, when others went on
    narrowed_at: datetime | None = None  # when that was
    doubtful: bool = False  # Issued, in a ledger that went back, and its node has not told: it may be claimed (R12)

    @property
    def devices(self) -> tuple[GrantedDevice, ...]:
        """All devices of the part, by rank."""
        return tuple(device for replica in self.replicas for device in replica.devices)

    @property
    def device_ids(self) -> tuple[DeviceId, ...]:
        """The ids of all devices of the part, by rank."""
        return tuple(device.device for device in self.devices)

    @property
    def goes_on(self) -> bool:
        """The part is not revoked: it may start, or something of it may run."""
        return self.state in {PartState.ISSUED, PartState.CLAIMED}

    @property
    def live(self) -> bool:
        """The part still holds its devices."""
        return self.state is not PartState.RELEASED


@dataclass(frozen=True, slots=True)
class Grant:
    """Devices given to one attempt, with an epoch. ``version`` counts its facts; ``revocation`` is the revocation's."""

    id: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    name: str
    queue: str
    cluster: ClusterId
    gpu_class: str
    work: Work
    issued_at: datetime
    start_deadline: datetime
    parts: tuple[Part, ...]
    version: int = 0
    revoked_at: datetime | None = None
    revocation: int | None = None
    reason: Reason | None = None

    @property
    def run(self) -> RunName:
        """The name that destinations know the attempt by."""
        return run_name(self.job, self.attempt)

    @property
    def live(self) -> bool:
        """One part is not Released."""
        return any(part.live for part in self.parts)

    def part(self, node: NodeId) -> Part | None:
        """The part on a node."""
        return next((part for part in self.parts if part.node == node), None)

    def with_part(self, part: Part) -> "Grant":
        """The grant with the part on its node as it is now."""
        return replace(self, parts=tuple(part if part.node == old.node else old for old in self.parts))

    def revocation_of(self, part: Part) -> int | None:
        """The version of the revocation that a part follows: its own, or the grant's. A seal must answer it (R5)."""
        return part.revocation or self.revocation


class Word(NamedTuple):
    """What a person says who releases a part without proof: who it is, and why."""

    person: str
    reason: str


class Said(NamedTuple):
    """A fact of a grant and its version."""

    version: int
    fact: Event


class Step(NamedTuple):
    """A grant after something happened, and what to say of it."""

    grant: Grant
    facts: tuple[Said, ...] = ()


def issue(grant: Grant) -> Step:
    """Say a new grant whole (R1)."""
    parts = tuple(GrantPart(node=part.node, node_name=part.node_name, replicas=part.replicas) for part in grant.parts)
    fact = GrantIssued(
        grant=grant.id,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        name=grant.name,
        queue=grant.queue,
        cluster=grant.cluster,
        gpu_class=grant.gpu_class,
        world_size=sum(len(part.replicas) for part in parts),
        parts=parts,
        work=grant.work,
        issued_at=grant.issued_at,
        start_deadline=grant.start_deadline,
    )
    return say(grant, fact)


def confirm(
    grant: Grant, node: NodeId, *, instance: str, boot: str, replicas: tuple[ReplicaSlot, ...], now: datetime
) -> Step:
    """Take an accepted claim: Issued -> Claimed, on the devices that the process really sees (R2, R3)."""
    before = grant.part(node)
    assert before is not None, (grant.id, node)
    assert before.state is PartState.ISSUED, (grant.id, before)
    part = _move(before, PartState.CLAIMED)
    part = replace(part, instance=instance, boot=boot, claimed_at=now, replicas=replicas)
    fact = GrantConfirmed(
        grant=grant.id,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        node=node,
        instance=instance,
        boot=boot,
        devices=part.device_ids,
        claimed_at=now,
    )
    return say(grant.with_part(part), fact, node)


def revoke(grant: Grant, why: Reason, *, now: datetime) -> Step:
    """End a grant, whoever asks (R4): what is Issued is Released at once, what may be Claimed needs its proof."""
    if grant.revoked_at is not None:
        return Step(grant)
    parts = [part for part in grant.parts if part.goes_on]
    unclaimed = tuple(part.node for part in parts if part.state is PartState.ISSUED and not part.doubtful)
    claimed = tuple(part.node for part in parts if part.node not in unclaimed)
    revoked = replace(
        grant,
        revoked_at=now,
        revocation=grant.version + 1,
        reason=why,
        parts=tuple(_move(p, PartState.REVOKING) if p.node in claimed else p for p in grant.parts),
    )
    fact = GrantRevoked(
        grant=grant.id,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        reason=why,
        nodes=claimed,
        revoked_at=now,
        alone=tuple(part.node for part in grant.parts if part.state is PartState.REVOKING),
    )
    step = say(revoked, fact)
    return _release(step, unclaimed, ReleaseProof.NEVER_CLAIMED, now=now)


def lose(grant: Grant, node: NodeId, why: Reason, *, now: datetime) -> Step:
    """Give a node up: the grant ends, unless all that it had there had ended well before."""
    part = grant.part(node)
    return revoke(grant, why, now=now) if part is not None and part.goes_on else Step(grant)


def sealed(grant: Grant, answer: SealAnswer, *, now: datetime) -> Step:
    """Take a seal (R5a): of this grant, epoch and revocation, so that the agent looked after the revocation."""
    part = grant.part(answer.node)
    fits = (
        answer.sealed
        and answer.grant == grant.id
        and answer.epoch == grant.epoch
        and part is not None
        and answer.revocation == grant.revocation_of(part)
        and part.state is PartState.REVOKING
        and set(answer.devices) >= set(part.device_ids)
    )
    if not fits:
        return Step(grant)
    return _release(Step(grant), (answer.node,), ReleaseProof.SEAL, now=now, exit_record=answer.exit)


def boot_ended(grant: Grant, node: NodeId, boots: Collection[str], *, now: datetime) -> Step:
    """Take the end of boots of a node (R5b, R6): it frees what was claimed under them, and nothing else.

    The grant ends, unless all that it had there had ended well before.
    """
    part = grant.part(node)
    if part is None or not part.live or part.boot not in boots:
        return Step(grant)
    step = lose(grant, node, reason(Layer.NODE, Code.BOOT_ENDED, f"{part.node_name} was restarted"), now=now)
    return _release(step, (node,), ReleaseProof.BOOT_ENDED, now=now)


def override(grant: Grant, node: NodeId, word: Word, *, now: datetime) -> Step:
    """Take a named person's word for a part whose proof is overdue (R5c, R11): Revoking, and escalated before."""
    part = grant.part(node)
    if part is None or part.state is not PartState.REVOKING or part.escalated_at is None:
        return Step(grant)
    fact = GrantOverridden(
        grant=grant.id,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        node=node,
        devices=part.device_ids,
        person=word.person,
        reason=word.reason,
        overridden_at=now,
    )
    return _release(say(grant, fact), (node,), ReleaseProof.OVERRIDE, now=now)


def superseded(grant: Grant, node: NodeId, epoch: int, *, now: datetime) -> Step:
    """Take a claimed run of a later epoch on the part's devices for proof: the ledger has forgotten a release (R12).

    A later epoch was drawn for these devices only after the part was Released (R1).
    """
    part = grant.part(node)
    if part is None or not part.live or grant.epoch >= epoch:
        return Step(grant)
    step = lose(grant, node, reason(Layer.PLACEMENT, Code.RUN_ENDED, "the ledger had forgotten its end"), now=now)
    left = step.grant.part(node)
    if left is None or not left.live:
        return step
    return _release(step, (node,), ReleaseProof.SUPERSEDED, now=now)


def suspect(grant: Grant, node: NodeId, why: Reason, *, now: datetime) -> Step:
    """Mark a part: what is on its devices is not known (R7). A mark, not a state: work goes on."""
    part = grant.part(node)
    if part is None or not part.live or part.suspected_at is not None:
        return Step(grant)
    return _suspected(grant, replace(part, suspected_at=now), why, now)


def escalate(grant: Grant, node: NodeId, why: Reason, *, now: datetime) -> Step:
    """Put a part whose proof is overdue before a person (R7): still not free."""
    part = grant.part(node)
    if part is None or part.state is not PartState.REVOKING or part.escalated_at is not None:
        return Step(grant)
    return _suspected(grant, replace(part, escalated_at=now, suspected_at=part.suspected_at or now), why, now)


def heard(grant: Grant, node: NodeId, *, now: datetime) -> Step:
    """Take the mark of silence off a part whose node is heard again; what was escalated stays so."""
    part = grant.part(node)
    if part is None or not part.live or part.suspected_at is None or part.escalated_at is not None:
        return Step(grant)
    fact = GrantCleared(
        grant=grant.id,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        node=node,
        cleared_at=now,
    )
    return say(grant.with_part(replace(part, suspected_at=None)), fact)


def each(step: Step, actions: Iterable[Callable[[Grant], Step]]) -> Step:
    """Do one after the other and gather what is said."""
    for action in actions:
        after = action(step.grant)
        step = Step(after.grant, step.facts + after.facts)
    return step


def _release(
    step: Step,
    nodes: Sequence[NodeId],
    proof: ReleaseProof,
    *,
    now: datetime,
    exit_record: ExitRecord | None = None,
) -> Step:
    for node in nodes:
        before = step.grant.part(node)
        assert before is not None, (step.grant.id, node)
        part = replace(_move(before, PartState.RELEASED), released_at=now, proof=proof, exit=exit_record or before.exit)
        grant = step.grant.with_part(part)
        said = say(grant, _released(grant, part, proof, now), node)
        step = Step(said.grant, step.facts + said.facts)
    return step


def _released(grant: Grant, part: Part, proof: ReleaseProof, now: datetime) -> GrantReleased:
    return GrantReleased(
        grant=grant.id,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        queue=grant.queue,
        gpu_class=grant.gpu_class,
        node=part.node,
        devices=part.device_ids,
        proof=proof,
        claimed=part.claimed_at is not None,
        exit=part.exit,
        remaining=sum(other.live for other in grant.parts),
        issued_at=grant.issued_at,
        released_at=now,
        alone=part.revocation is not None,
        lost_at=part.escalated_at,
    )


def _suspected(grant: Grant, part: Part, why: Reason, now: datetime) -> Step:
    fact = GrantSuspected(
        grant=grant.id,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        node=part.node,
        reason=why,
        since=now,
        devices=part.device_ids,
    )
    return say(grant.with_part(part), fact, part.node)


def say(grant: Grant, fact: Event, node: NodeId | None = None) -> Step:
    """Give the fact its version, and remember it on the part that it is about."""
    version = grant.version + 1
    parts = tuple(replace(part, version=version) if part.node == node else part for part in grant.parts)
    return Step(replace(grant, version=version, parts=parts), (Said(version, fact),))


def _move(part: Part, state: PartState) -> Part:
    assert may(PART_LIFE, part.state, state), (part, state)
    return replace(part, state=state)
