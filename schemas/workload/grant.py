"""What placement grants. Owner: placement."""

from datetime import datetime
from enum import StrEnum

from schemas.base import Event
from schemas.ids import ClusterId, DeviceId, GrantId, JobId, NodeId, TenantId
from schemas.reasons import Reason
from schemas.workload.parts import ExitRecord, GrantPart, Work


class GrantIssued(Event):
    """The ledger gave these devices to this attempt, all or nothing. Key of grant facts: grant (refused: run name)."""

    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    name: str
    queue: str
    cluster: ClusterId
    gpu_class: str
    world_size: int
    parts: tuple[GrantPart, ...]
    work: Work
    issued_at: datetime
    start_deadline: datetime


class GrantRefused(Event):
    """No devices now, or ``final``: never for this attempt, so admission takes the quota back.

    Final is said when the whole fleet could never hold the gang, and as the answer to an attempt that was over
    (``AttemptOver``) before anything was issued to it.
    """

    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason
    final: bool


class GrantConfirmed(Event):
    """A part is Claimed: one run instance of one boot may be running on these devices."""

    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    node: NodeId
    instance: str
    boot: str
    devices: tuple[DeviceId, ...]
    claimed_at: datetime


class GrantNarrowed(Event):
    """One part is over while others go on, for all that ran there ended well (``exit``).

    No start of it passes any more, and it still needs its proof of release. Nothing is said to the other parts.
    """

    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    node: NodeId
    devices: tuple[DeviceId, ...]
    exit: ExitRecord
    narrowed_at: datetime


class GrantRevoked(Event):
    """No start passes any more; claimed parts (``nodes``) still need their proof of release.

    So do those that were revoked alone before (``alone``): their release names them so, too.
    """

    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason
    nodes: tuple[NodeId, ...]
    revoked_at: datetime
    alone: tuple[NodeId, ...] = ()


class GrantSuspected(Event):
    """A mark, not a state: what is on these devices is not known. They stay used and are not offered.

    ``devices``: of the part; none are named by who does not know them.
    """

    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    node: NodeId
    reason: Reason
    since: datetime
    devices: tuple[DeviceId, ...] = ()


class GrantCleared(Event):
    """The mark is gone from this part: its node is heard again, and the work there went on."""

    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    node: NodeId
    cleared_at: datetime


class GrantOverridden(Event):
    """A named person said, for this reason, that nothing of an escalated part lives any more: it is Released by that.

    The node is asked on, so that what still runs there is stopped and seen to be over.
    """

    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    node: NodeId
    devices: tuple[DeviceId, ...]
    person: str
    reason: str
    overridden_at: datetime


class ReleaseProof(StrEnum):
    """Why a part may be Released."""

    NEVER_CLAIMED = "NeverClaimed"
    SEAL = "Seal"
    BOOT_ENDED = "BootEnded"
    OVERRIDE = "Override"
    SUPERSEDED = "Superseded"  # a claimed run of a later epoch holds its devices: an older ledger forgot the release


class GrantReleased(Event):
    """One part is Released: proved over, or never claimed. ``remaining`` parts of the grant are still held.

    ``alone``: it was revoked alone, and not with its grant; ``lost_at``: it was put before a person then, for its proof
    was overdue, so that the time from then on is the platform's loss.
    """

    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    queue: str
    gpu_class: str
    node: NodeId
    devices: tuple[DeviceId, ...]
    proof: ReleaseProof
    claimed: bool
    exit: ExitRecord | None
    remaining: int
    issued_at: datetime
    released_at: datetime
    alone: bool = False
    lost_at: datetime | None = None
