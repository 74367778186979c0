"""Why: a closed list of codes, each with the layer that says it and whose fault it is.

The codes are Kueue's, Kubernetes' and Slurm's where those have a word for it. A code never changes its meaning.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

from pydantic import Field

from schemas.base import Value

MESSAGE_LIMIT: Final = 1_000


class Layer(StrEnum):
    """Who says it."""

    REQUEST = "request"
    ADMISSION = "admission"
    PLACEMENT = "placement"
    DISPATCH = "dispatch"
    NODE = "node"
    FLEET = "fleet"


class Fault(StrEnum):
    """Whose it is: the user's failures use up retries, the platform's and policy's bring the job home for nothing."""

    NONE = "none"
    USER = "user"
    PLATFORM = "platform"
    POLICY = "policy"


class Code(StrEnum):
    """Every reason code there is."""

    UNKNOWN = "Unknown"
    # admission
    QUEUE_UNKNOWN = "QueueUnknown"
    CLASS_NOT_OFFERED = "ClassNotOffered"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    WAITING_FOR_RELEASE = "WaitingForRelease"
    EXCEEDS_QUOTA = "ExceedsQuota"
    BACKOFF = "Backoff"
    CANCELLED = "Cancelled"
    RETRIES_EXHAUSTED = "RetriesExhausted"
    PLACEMENT_TIMEOUT = "PlacementTimeout"
    PREEMPTED = "Preempted"
    # placement
    WAITING_FOR_CAPACITY = "WaitingForCapacity"
    HELD_FOR_RECOVERY = "HeldForRecovery"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    CAN_NEVER_FIT = "CanNeverFit"
    NO_DESTINATION = "NoDestination"
    ATTEMPT_OVER = "AttemptOver"
    RUN_ENDED = "RunEnded"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    DRAINED = "Drained"
    NODE_LOST = "NodeLost"
    DEVICE_MISMATCH = "DeviceMismatch"
    DEVICE_SUSPECT = "DeviceSuspect"
    GRANT_OVER = "GrantOver"
    ALREADY_STARTED = "AlreadyStarted"
    BOOT_ENDED = "BootEnded"
    NOT_OWNER = "NotOwner"
    GRANT_UNKNOWN = "GrantUnknown"
    NOT_ESCALATED = "NotEscalated"
    OVERRIDDEN = "Overridden"
    LEDGER_BEHIND = "LedgerBehind"
    RECORDS_DIFFER = "RecordsDiffer"
    # dispatch and node
    NON_ZERO_EXIT_CODE = "NonZeroExitCode"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    SIGNALLED = "Signalled"
    START_FAILED = "StartFailed"
    STOPPED = "Stopped"
    LAUNCH_REFUSED = "LaunchRefused"
    DEVICE_NOT_CLEAR = "DeviceNotClear"
    BACKEND_RESTARTED = "BackendRestarted"
    BACKEND_CANCELLED = "BackendCancelled"
    RESULT_UNKNOWN = "ResultUnknown"
    VANISHED = "Vanished"
    STILL_RUNNING = "StillRunning"
    NODE_BLIND = "NodeBlind"
    UNMANAGED_USE = "UnmanagedUse"
    AGENT_UNREACHABLE = "AgentUnreachable"
    ROOT_REFUSED = "RootRefused"
    # fleet
    HEARTBEAT_LOST = "HeartbeatLost"
    FLEET_SILENT = "FleetSilent"
    CORDONED = "Cordoned"
    DESTINATION_STALE = "DestinationStale"
    STUCK_TERMINATION = "StuckTermination"
    # moves
    NODE_UNKNOWN = "NodeUnknown"
    DESTINATION_UNKNOWN = "DestinationUnknown"
    ALREADY_OWNER = "AlreadyOwner"
    MOVE_UNDER_WAY = "MoveUnderWay"
    MOVE_UNKNOWN = "MoveUnknown"
    MOVE_OVER = "MoveOver"
    STILL_GRANTED = "StillGranted"
    HOLD_OVER = "HoldOver"
    MARK_REFUSED = "MarkRefused"


USERS_FAULT: Final = frozenset(
    {Code.NON_ZERO_EXIT_CODE, Code.DEADLINE_EXCEEDED, Code.SIGNALLED, Code.START_FAILED, Code.ROOT_REFUSED}
)
UNPROVED: Final = frozenset({Code.NODE_LOST, Code.STUCK_TERMINATION})
"""A proof of release that is overdue is put before a person with these: what it costs is the platform's (R10)."""
NODE_GONE: Final = frozenset({Code.DRAINED, Code.NODE_LOST, Code.BOOT_ENDED})
"""A gang that ends for one of these lost a node: what it had is held for it, where its document says so."""
POLICY: Final = frozenset({Code.DRAINED, Code.CORDONED, Code.PREEMPTED})
NO_FAULT: Final = frozenset(
    {
        Code.WAITING_FOR_QUOTA,
        Code.WAITING_FOR_PREEMPTED_WORKLOADS,
        Code.WAITING_FOR_RELEASE,
        Code.EXCEEDS_QUOTA,
        Code.BACKOFF,
        Code.CANCELLED,
        Code.BACKEND_CANCELLED,
        Code.WAITING_FOR_CAPACITY,
        Code.HELD_FOR_RECOVERY,
        Code.TOPOLOGY_PLACEMENT_FAILED,
        Code.CAN_NEVER_FIT,
        Code.ATTEMPT_OVER,
        Code.RUN_ENDED,
        Code.GRANT_OVER,
        Code.STOPPED,
    }
)


def fault_of(code: Code) -> Fault:
    """Return whose fault a code is; what nobody claims is the platform's."""
    if code in USERS_FAULT:
        return Fault.USER
    if code in POLICY:
        return Fault.POLICY
    return Fault.NONE if code in NO_FAULT else Fault.PLATFORM


class Reason(Value):
    """Why something is as it is: a stable code, the numbers behind it, and words for people (cut at 1,000)."""

    layer: Layer
    code: Code
    message: str = Field(default="", max_length=MESSAGE_LIMIT)
    numbers: dict[str, int] = Field(default_factory=dict)
    since: datetime | None = None
    retry_after_seconds: int | None = None


def reason(
    layer: Layer, code: Code, message: str = "", *, retry_after_seconds: int | None = None, **numbers: int
) -> Reason:
    """Return a reason; a message over the limit is cut, never refused, so that a decision is always stored."""
    return Reason(
        layer=layer,
        code=code,
        message=message[:MESSAGE_LIMIT],
        numbers=numbers,
        retry_after_seconds=retry_after_seconds,
    )
