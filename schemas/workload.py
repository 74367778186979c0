"""Facts of the workload plane: what users wish, what admission decides, what placement grants, how runs go."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue

from schemas.base import Event, Value
from schemas.ids import ClusterId, DeviceId, GrantId, JobId, NodeId, RunName, TenantId
from schemas.reasons import Reason


class Demand(Value):
    """What one attempt needs. The gang is ``replicas``; each replica has all its devices on one node."""

    classes: tuple[str, ...]
    replicas: int
    min_replicas: int
    devices_per_replica: int
    cpu_milli_per_replica: int = 0
    memory_mib_per_replica: int = 0
    topology_level: str | None = None
    topology_required: bool = False

    @property
    def devices(self) -> int:
        """Devices of the whole gang."""
        return self.replicas * self.devices_per_replica


class Work(Value):
    """What every replica of the gang runs."""

    command: tuple[str, ...]
    env: dict[str, str] = Field(default_factory=dict)
    workdir: str | None = None
    time_limit_seconds: int | None = None
    grace_seconds: int = 30


class RequestSubmitted(Event):
    """A user wished a job. Key: job."""

    job: JobId
    tenant: TenantId
    name: str
    queue: str
    priority: int
    demand: Demand
    work: Work
    retries: int
    labels: dict[str, str]
    digest: str
    submitted_by: str


class RequestWithdrawn(Event):
    """A user wished a job away. Key: job; version follows the submission's."""

    job: JobId
    tenant: TenantId
    withdrawn_by: str
    message: str = ""


class RequestApplied(Event):
    """A Queue, GpuClass or Cluster document was declared. Key: the document's id; version: its generation."""

    kind: Literal["Queue", "GpuClass", "Cluster"]
    tenant: TenantId | None
    name: str
    document: dict[str, JsonValue]
    applied_by: str


class RequestOrdered(Event):
    """An operator ordered a node out of or back into service. Key: the order's id. Scope: the cluster."""

    order: Literal["cordon", "drain", "uncordon"]
    cluster: ClusterId
    node: NodeId
    owner: str
    reason: str
    session: str


class JobQueued(Event):
    """Admission took the job into its queue. Key of all job facts: job."""

    job: JobId
    attempt: int
    tenant: TenantId
    name: str
    queue: str
    priority: int
    demand: Demand


class JobQuotaReserved(Event):
    """The queue's quota of one class holds room for the whole gang; the charge is booked."""

    job: JobId
    attempt: int
    tenant: TenantId
    queue: str
    gpu_class: str
    devices: int


class JobAdmitted(Event):
    """The attempt may be placed. Carries all that placement and dispatch need."""

    job: JobId
    attempt: int
    tenant: TenantId
    name: str
    queue: str
    priority: int
    gpu_class: str
    demand: Demand
    work: Work
    queued_at: datetime


class JobHeld(Event):
    """The job waits in its queue, for this reason; said again when code or numbers that concern the job change."""

    job: JobId
    attempt: int
    tenant: TenantId
    queue: str
    reason: Reason


class JobEvicted(Event):
    """The attempt is over without an end of the job. For placement: ``attempt_over``."""

    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason


class JobRequeued(Event):
    """The job is home in its queue as a new attempt, not to be admitted before the given time."""

    job: JobId
    attempt: int
    tenant: TenantId
    queue: str
    not_before: datetime
    reason: Reason


class JobRejected(Event):
    """An end: the job can not be taken. For placement: ``attempt_over``."""

    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason


class JobCancelled(Event):
    """An end: withdrawn before it was over. For placement: ``attempt_over``."""

    job: JobId
    attempt: int
    tenant: TenantId
    cancelled_by: str
    message: str = ""


class Outcome(StrEnum):
    """How a job that ran came to its end."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class JobFinished(Event):
    """An end: the last attempt's result. For placement: ``attempt_over``."""

    job: JobId
    attempt: int
    tenant: TenantId
    outcome: Outcome
    exit_code: int | None = None
    reason: Reason | None = None


class GrantedDevice(Value):
    """One device of a grant; ``index`` is its place on the node, ``ordinal`` its number in the ledger."""

    device: DeviceId
    index: int
    ordinal: int


class ReplicaSlot(Value):
    """One replica (rank) of the gang and its devices, all on the part's node."""

    rank: int
    devices: tuple[GrantedDevice, ...]


class GrantPart(Value):
    """Grant x node: the unit that is claimed and released. Holds one or more replicas."""

    node: NodeId
    node_name: str
    replicas: tuple[ReplicaSlot, ...]

    @property
    def devices(self) -> tuple[GrantedDevice, ...]:
        """All devices of the part, by rank."""
        return tuple(device for replica in self.replicas for device in replica.devices)


class RankExit(Value):
    """How one replica's process ended: an exit code, or the signal that killed it."""

    rank: int
    exit_code: int | None
    signal: int | None = None


class ExitRecord(Value):
    """The node's record of one run instance's end."""

    instance: str
    ranks: tuple[RankExit, ...]
    timed_out: bool = False
    stopped: bool = False
    refused: Reason | None = None
    started_at: datetime | None = None
    ended_at: datetime

    @property
    def succeeded(self) -> bool:
        """Every replica ended by itself with code 0."""
        return (
            bool(self.ranks)
            and not (self.timed_out or self.stopped or self.refused)
            and all(rank.exit_code == 0 for rank in self.ranks)
        )


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


class GrantRevoked(Event):
    """No start passes any more; claimed parts (``nodes``) still need their proof of release."""

    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason
    nodes: tuple[NodeId, ...]
    revoked_at: datetime


class GrantSuspected(Event):
    """A mark, not a state: what is on these devices is not known. They stay used and are not offered."""

    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    node: NodeId
    reason: Reason
    since: datetime


class ReleaseProof(StrEnum):
    """Why a part may be Released."""

    NEVER_CLAIMED = "NeverClaimed"
    SEAL = "Seal"
    BOOT_ENDED = "BootEnded"
    OVERRIDE = "Override"


class GrantReleased(Event):
    """One part is Released: proved over, or never claimed. ``remaining`` parts of the grant are still held."""

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


class RunLaunched(Event):
    """The destination was asked to start the run. Key of all run facts: run."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    cluster: ClusterId


class RunAccepted(Event):
    """The destination acknowledged the run: the job is Placed."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId


class RunStarted(Event):
    """Every part was claimed and its processes were seen. Once an attempt."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    started_at: datetime


class RunSucceeded(Event):
    """Every replica ended with code 0."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    ended_at: datetime


class RunFailed(Event):
    """The run ended otherwise; the reason's code says whose fault it is."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    exit_code: int | None
    reason: Reason
    ended_at: datetime


class RunStopped(Event):
    """The run was ended by us after a revocation."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason
    ended_at: datetime


class RunLost(Event):
    """The run's result is unknown; nothing is freed by this."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason
