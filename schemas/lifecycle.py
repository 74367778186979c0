"""The lives of job, part, run, device and move: one table each. Diagrams are drawn from the tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from schemas import workload as w
from schemas.base import Event
from schemas.fleet import MoveState


class JobState(StrEnum):
    """Where a job is. Granted … Running are folded from grant and run facts."""

    QUEUED = "Queued"
    QUOTA_RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    GRANTED = "Granted"
    DISPATCHED = "Dispatched"
    PLACED = "Placed"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    REJECTED = "Rejected"


class PartState(StrEnum):
    """A part of a grant: only ever down this list."""

    ISSUED = "Issued"
    CLAIMED = "Claimed"
    REVOKING = "Revoking"
    RELEASED = "Released"


class RunState(StrEnum):
    """A run as dispatch knows it."""

    LAUNCHING = "Launching"
    LAUNCHED = "Launched"
    ACCEPTED = "Accepted"
    STARTED = "Started"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    LOST = "Lost"


class DeviceState(StrEnum):
    """A device, derived from its line and its marks."""

    FREE = "Free"
    RESERVED = "Reserved"
    GRANTED = "Granted"
    IN_USE = "InUse"
    RELEASING = "Releasing"
    SUSPECT = "Suspect"
    QUARANTINED = "Quarantined"
    DRAINED = "Drained"
    LOST = "Lost"
    RETIRED = "Retired"


S = TypeVar("S", bound=StrEnum)
J = JobState
ENDS: Final = frozenset({J.SUCCEEDED, J.FAILED, J.CANCELLED, J.REJECTED})

JOB_LIFE: Final[Mapping[JobState, tuple[JobState, ...]]] = {
    J.QUEUED: (J.QUOTA_RESERVED, J.CANCELLED, J.REJECTED),
    J.QUOTA_RESERVED: (J.ADMITTED, J.QUEUED, J.CANCELLED, J.REJECTED),
    J.ADMITTED: (J.GRANTED, J.QUEUED, J.CANCELLED, J.REJECTED),
    J.GRANTED: (J.DISPATCHED, J.QUEUED, J.FAILED, J.CANCELLED, J.REJECTED),
    J.DISPATCHED: (J.PLACED, J.QUEUED, J.FAILED, J.CANCELLED, J.REJECTED),
    J.PLACED: (J.RUNNING, J.QUEUED, J.SUCCEEDED, J.FAILED, J.CANCELLED, J.REJECTED),
    J.RUNNING: (J.SUCCEEDED, J.FAILED, J.QUEUED, J.CANCELLED, J.REJECTED),
    J.SUCCEEDED: (),
    J.FAILED: (),
    J.CANCELLED: (),
    J.REJECTED: (),
}
PART_LIFE: Final[Mapping[PartState, tuple[PartState, ...]]] = {
    PartState.ISSUED: (PartState.CLAIMED, PartState.REVOKING, PartState.RELEASED),
    PartState.CLAIMED: (PartState.REVOKING,),
    PartState.REVOKING: (PartState.RELEASED,),
    PartState.RELEASED: (),
}
R = RunState
RUN_ENDS: Final = frozenset({R.SUCCEEDED, R.FAILED, R.STOPPED, R.LOST})
RUN_LIFE: Final[Mapping[RunState, tuple[RunState, ...]]] = {
    R.LAUNCHING: (R.LAUNCHED, R.FAILED, R.STOPPED),
    R.LAUNCHED: (R.ACCEPTED, R.STARTED, R.SUCCEEDED, R.FAILED, R.STOPPED, R.LOST),
    R.ACCEPTED: (R.STARTED, R.SUCCEEDED, R.FAILED, R.STOPPED, R.LOST),
    R.STARTED: (R.SUCCEEDED, R.FAILED, R.STOPPED, R.LOST),
    R.SUCCEEDED: (),
    R.FAILED: (),
    R.STOPPED: (),
    R.LOST: (),
}
M = MoveState
MOVE_ENDS: Final = frozenset({M.COMPLETED, M.CANCELLED})
MOVE_LIFE: Final[Mapping[MoveState, tuple[MoveState, ...]]] = {
    M.REQUESTED: (M.HELD, M.UNMARKED),
    M.HELD: (M.MARKED, M.CANCELLING),
    M.MARKED: (M.MOVED, M.CANCELLING),
    M.MOVED: (M.COMPLETED,),
    M.COMPLETED: (),
    M.CANCELLING: (M.UNMARKED,),
    M.UNMARKED: (M.CANCELLED,),
    M.CANCELLED: (),
}
LIVES: Final[Mapping[str, Mapping[Any, tuple[StrEnum, ...]]]] = {
    "job": JOB_LIFE,
    "part of a grant": PART_LIFE,
    "run": RUN_LIFE,
    "move of a node": MOVE_LIFE,
}

JOB_STATE_OF: Final[Mapping[type[Event], JobState]] = {
    w.JobQueued: J.QUEUED,
    w.JobHeld: J.QUEUED,
    w.JobRequeued: J.QUEUED,
    w.JobQuotaReserved: J.QUOTA_RESERVED,
    w.JobAdmitted: J.ADMITTED,
    w.GrantIssued: J.GRANTED,
    w.RunLaunched: J.DISPATCHED,
    w.RunAccepted: J.PLACED,
    w.RunStarted: J.RUNNING,
    w.JobCancelled: J.CANCELLED,
    w.JobRejected: J.REJECTED,
}
_PROGRESS: Final = {state: rank for rank, state in enumerate(JobState)}


@dataclass(frozen=True, slots=True)
class JobLife:
    """A job's state and current attempt, as far as the facts heard so far tell."""

    state: JobState = JobState.QUEUED
    attempt: int = 1

    @property
    def ended(self) -> bool:
        """The job has its one end and never leaves it."""
        return self.state in ENDS


def fold(life: JobLife, fact: Event) -> JobLife:
    """Return the life after a fact, in whatever order facts come.

    An end stays; facts of an old attempt change nothing; inside an attempt the furthest state wins; an eviction
    brings the job home as the next attempt. Used by the gateway and whoever shows a job.
    """
    attempt = getattr(fact, "attempt", None)
    if life.ended or attempt is None or attempt < life.attempt:
        return life
    if isinstance(fact, w.JobEvicted):
        return JobLife(J.QUEUED, attempt + 1)
    state = J(fact.outcome.value) if isinstance(fact, w.JobFinished) else JOB_STATE_OF.get(type(fact))
    if attempt > life.attempt:
        return JobLife(state or J.QUEUED, attempt)
    if state is None or _PROGRESS[state] <= _PROGRESS[life.state]:
        return life
    return replace(life, state=state)


def may(life: Mapping[S, tuple[S, ...]], before: S, after: S) -> bool:
    """Say whether the table allows this step."""
    return after in life[before]
