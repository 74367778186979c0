"""Claims rebuilt from what nodes say, after the ledger went back (R12)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count, islice
from typing import Final

from schemas.calls import LaunchOrder, Seal, SealAnswer
from schemas.ids import ClusterId, DeviceId, GrantId, NodeId, grant_id
from schemas.workload import GrantedDevice, ReplicaSlot
from services.placement.core.grant import Grant, Part

GRANTS_AN_ATTEMPT: Final = 1_000  # numbers that are tried to find which grant of its attempt one was
NO_REVOCATION: Final = 0  # in the seal of a stranger: nothing of it was ever revoked, and versions begin with 1


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A part that a node runs and the ledger does not know.

    It is a stranger when the ledger knows the grant, but not with this part or under this epoch, or has no place for it
    any more: it is never taken up, and holds its devices until its node seals or is in another boot.
    """

    node: NodeId
    node_name: str
    cluster: ClusterId
    boot: str
    instance: str
    order: LaunchOrder

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        """All its devices."""
        return tuple(device.device for replica in self.order.replicas for device in replica.devices)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A grant as it must have been: its parts are to be inserted as Issued and confirmed at once."""

    grant: Grant
    number: int
    whole: bool
    parts: tuple[Forgotten, ...]

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        """All its devices."""
        return tuple(device for part in self.grant.parts for device in part.device_ids)


def rebuilt(
    parts: Sequence[Forgotten], slots: Mapping[DeviceId, tuple[GrantedDevice, str | None]], *, now: datetime
) -> Rebuilt | None:
    """Return the grant of these parts; None: the ledger does not know its devices (yet)."""
    parts = sorted(parts, key=lambda part: min(replica.rank for replica in part.order.replicas))
    order = parts[0].order
    replicas = [_bound(part.order.replicas, slots) for part in parts]
    classes = {
        slots[d.device][1] for part in parts for r in part.order.replicas for d in r.devices if d.device in slots
    }
    gpu_class = next(iter(classes), None)
    if any(bound is None for bound in replicas) or len(classes) != 1 or gpu_class is None:
        return None
    held = tuple(
        Part(part.node, part.node_name, bound) for part, bound in zip(parts, replicas, strict=True) if bound is not None
    )
    grant = Grant(
        id=order.grant,
        epoch=order.epoch,
        job=order.job,
        attempt=order.attempt,
        tenant=order.tenant,
        name=order.name,
        queue=order.queue,
        cluster=order.cluster or parts[0].cluster,
        gpu_class=gpu_class,
        work=order.work,
        issued_at=now,
        start_deadline=order.start_deadline,
        parts=held,
    )
    ranks = sum(len(part.replicas) for part in held)
    return Rebuilt(grant, number_of(order), ranks == order.world_size, tuple(parts))


def number_of(order: LaunchOrder) -> int:
    """Return which grant of its attempt an order was for: ids are derived from it."""
    tried = islice(count(1), GRANTS_AN_ATTEMPT)
    return next((n for n in tried if grant_id(order.job, order.attempt, n) == order.grant), 1)


def by_grant(found: Sequence[Forgotten]) -> list[list[Forgotten]]:
    """Return the parts of each grant and epoch together; of one grant the last epoch comes first, and is kept."""
    grants: dict[tuple[GrantId, int], list[Forgotten]] = {}
    for part in sorted(found, key=lambda part: (part.order.grant, -part.order.epoch)):
        grants.setdefault((part.order.grant, part.order.epoch), []).append(part)
    return list(grants.values())


def seal_of(stranger: Forgotten) -> Seal:
    """Return the question for the proof that a stranger is over. The ledger holds no live part for it (G7)."""
    order = stranger.order
    return Seal(
        run=order.run,
        grant=order.grant,
        epoch=order.epoch,
        node=stranger.node,
        devices=stranger.devices,
        revocation=NO_REVOCATION,
        stop=True,
        grace_seconds=order.work.grace_seconds,
    )


def proved_over(stranger: Forgotten, answer: SealAnswer) -> bool:
    """Say whether an answer proves that a stranger is over: it was looked at after the ledger had noted it.

    No start of it can pass since then: a claim without a part of that epoch is refused (R2).
    """
    asked = seal_of(stranger)
    return (
        answer.sealed
        and (answer.grant, answer.epoch, answer.node) == (asked.grant, asked.epoch, asked.node)
        and answer.revocation == NO_REVOCATION
        and set(answer.devices) >= set(asked.devices)
    )


def _bound(
    replicas: Sequence[ReplicaSlot], slots: Mapping[DeviceId, tuple[GrantedDevice, str | None]]
) -> tuple[ReplicaSlot, ...] | None:
    """Return the replicas with the ledger's own ordinals."""
    if any(device.device not in slots for replica in replicas for device in replica.devices):
        return None
    return tuple(
        ReplicaSlot(rank=replica.rank, devices=tuple(slots[device.device][0] for device in replica.devices))
        for replica in replicas
    )
