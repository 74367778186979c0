"""What admission remembers: queues, jobs and charges."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from schemas.ids import JobId, NodeId, TenantId
from schemas.lifecycle import ENDS, JobState
from schemas.reasons import Reason
from schemas.workload import Demand, Preemption, Recovery, Work

LONGEST_BACKOFF: Final = timedelta(hours=1)  # what settings allow
CLOCK_ERROR: Final = timedelta(seconds=5)


class QueueKey(NamedTuple):
    """A queue is named inside its tenant."""

    tenant: TenantId
    name: str


class Account(StrEnum):
    """Who a charge is booked on: the queue, or the platform after an attempt whose release is unproved (R10)."""

    QUEUE = "queue"
    PLATFORM_LOSS = "platform-loss"


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue's order, its own share of each class, in devices, and whether its jobs preempt each other."""

    key: QueueKey
    strict: bool
    nominal: Mapping[str, int]
    generation: int
    preempts: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job as admission sees it: Queued, Admitted, or at its one end. ``version`` counts the facts said of it.

    ``preemption``: the plan that makes room for it while it waits; ``recovery``: room that is kept for it.
    """

    id: JobId
    queue: QueueKey
    name: str
    priority: int
    demand: Demand
    work: Work
    retries: int
    queued_at: datetime
    state: JobState = JobState.QUEUED
    attempt: int = 1
    failures: int = 0
    evictions: int = 0
    version: int = 0
    reason: Reason | None = None
    not_before: datetime | None = None
    admitted_at: datetime | None = None
    preemption: Preemption | None = None
    recovery: Recovery | None = None

    @property
    def ended(self) -> bool:
        """The job is at its one end."""
        return self.state in ENDS

    def in_backoff(self, now: datetime) -> bool:
        """The job waits until ``not_before``; one that is too far ahead was set before the clock was put back."""
        return self.not_before is not None and now < self.not_before <= now + LONGEST_BACKOFF

    def comes_back(self, now: datetime) -> bool:
        """Room that the job had is held for it; so long as no time that is too far ahead, as above."""
        longest = timedelta(seconds=self.demand.recovery_seconds or 0) + CLOCK_ERROR
        return self.recovery is not None and now < self.recovery.until <= now + longest


@dataclass(frozen=True, slots=True)
class Charge:
    """Devices booked for one attempt until they are proved released (R10), part by part.

    ``released`` are the devices of parts that were proved free, by node, and ``lost`` those whose proof is overdue.
    ``fact`` is the last fact said about the attempt and ``answered`` whether placement was heard on it.
    """

    job: JobId
    attempt: int
    queue: QueueKey
    gpu_class: str
    devices: int
    fact: UUID
    account: Account = Account.QUEUE
    granted: bool = False
    answered: bool = False
    over: bool = False
    released: Mapping[NodeId, int] = field(default_factory=dict)
    lost: Mapping[NodeId, int] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """The devices that are not proved free. Never negative."""
        return max(self.devices - sum(self.released.values()), 0)

    @property
    def unsettled(self) -> int:
        """The devices that are still the queue's, while the charge is: neither proved free nor lost. Never negative."""
        return max(self.devices - sum({**self.lost, **self.released}.values()), 0)


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers admission decides by."""

    backoff_seconds: int
    backoff_limit_seconds: int
    placement_deadline_seconds: int
    preemption_seconds: int


@dataclass(frozen=True, slots=True)
class View:
    """The part of admission's memory that a turn touches.

    ``used`` counts devices charged to (queue, class); ``withdrawn`` are jobs whose withdrawal came before them (R9).
    ``leaving`` counts the part of them whose attempts are over, of jobs that are not in the view.
    """

    queues: Mapping[QueueKey, Queue] = field(default_factory=dict)
    jobs: Mapping[JobId, Job] = field(default_factory=dict)
    charges: Mapping[tuple[JobId, int], Charge] = field(default_factory=dict)
    used: Mapping[tuple[QueueKey, str], int] = field(default_factory=dict)
    withdrawn: Mapping[JobId, str] = field(default_factory=dict)
    leaving: Mapping[tuple[QueueKey, str], int] = field(default_factory=dict)
