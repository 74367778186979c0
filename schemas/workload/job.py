"""What admission decides. Owner: admission."""

from datetime import datetime
from enum import StrEnum

from schemas.base import Event
from schemas.ids import JobId, TenantId
from schemas.reasons import Reason
from schemas.workload.parts import Demand, Preemption, Recovery, Work


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
    """The job waits in its queue, for this reason; said again when code or numbers that concern the job change.

    ``preemption``: jobs were ended for it, and their room is held; the hold ends with the next fact of the job.
    """

    job: JobId
    attempt: int
    tenant: TenantId
    queue: str
    reason: Reason
    preemption: Preemption | None = None


class JobEvicted(Event):
    """The attempt is over without an end of the job. For placement: ``attempt_over``."""

    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason


class JobRequeued(Event):
    """The job is home in its queue as a new attempt, not to be admitted before the given time.

    ``recovery``: room that is held for it until it is given devices, or its time is over.
    """

    job: JobId
    attempt: int
    tenant: TenantId
    queue: str
    not_before: datetime
    reason: Reason
    recovery: Recovery | None = None


class JobRejected(Event):
    """An end: the job can not be taken. For placement: ``attempt_over``."""

    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason


class JobCancelled(Event):
    """An end: withdrawn before it was over; with a reason when not by the user. For placement: ``attempt_over``."""

    job: JobId
    attempt: int
    tenant: TenantId
    cancelled_by: str
    message: str = ""
    reason: Reason | None = None


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
