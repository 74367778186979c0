"""What a fact, heard or said, changes in admission's memory."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias, TypeVar, assert_never

from schemas.base import Event, fact_type
from schemas.ids import JobId, TenantId, fact_id
from schemas.lifecycle import JobState
from schemas.reasons import UNPROVED, Code, Fault, fault_of
from schemas.spec.queue import Queue as QueueDocument
from schemas.workload import (
    GrantIssued,
    GrantRefused,
    GrantReleased,
    GrantRevoked,
    GrantSuspected,
    JobAdmitted,
    JobCancelled,
    JobEvicted,
    JobFinished,
    JobHeld,
    JobQueued,
    JobQuotaReserved,
    JobRejected,
    JobRequeued,
    RequestApplied,
    RequestSubmitted,
    RequestWithdrawn,
)
from services.admission.core.view import Account, Charge, Job, Queue, QueueKey, View

SAID: Final = (
    JobQueued,
    JobQuotaReserved,
    JobAdmitted,
    JobHeld,
    JobEvicted,
    JobRequeued,
    JobRejected,
    JobCancelled,
    JobFinished,
)
Said = (
    JobQueued
    | JobQuotaReserved
    | JobAdmitted
    | JobHeld
    | JobEvicted
    | JobRequeued
    | JobRejected
    | JobCancelled
    | JobFinished
)
K = TypeVar("K")
V = TypeVar("V")

GrantFact: TypeAlias = GrantIssued | GrantRefused | GrantRevoked | GrantReleased | GrantSuspected


def evolve(view: View, fact: Event, *, version: int, now: datetime) -> View:
    """Return the view after a fact. ``version`` is the entity's, ``now`` the time of the turn."""
    match fact:
        case RequestSubmitted():
            return view if fact.job in view.jobs else replace(view, jobs=_with(view.jobs, fact.job, _job(fact, now)))
        case RequestWithdrawn():
            known = fact.job in view.jobs
            return view if known else replace(view, withdrawn=_with(view.withdrawn, fact.job, fact.withdrawn_by))
        case RequestApplied(kind="Queue"):
            return _declared(view, fact, version)
        case GrantIssued() | GrantRefused() | GrantRevoked() | GrantReleased() | GrantSuspected():
            return _answered(_came_back(view, fact), fact)
        case _ if isinstance(fact, SAID):
            return _said(view, fact, now)
        case _:
            return view


def lapse(view: View, *, now: datetime) -> View:
    """Return the view without the room that was held for jobs which did not come back in their time."""
    late = [job for job in view.jobs.values() if job.recovery is not None and not job.comes_back(now)]
    return replace(view, jobs={**view.jobs, **{job.id: replace(job, recovery=None) for job in late}}) if late else view


def _with(known: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    return {**known, key: value}


def _job(fact: RequestSubmitted, now: datetime) -> Job:
    return Job(
        id=fact.job,
        queue=QueueKey(fact.tenant, fact.queue),
        name=fact.name,
        priority=fact.priority,
        demand=fact.demand,
        work=fact.work,
        retries=fact.retries,
        queued_at=now,
    )


def _declared(view: View, fact: RequestApplied, generation: int) -> View:
    document = QueueDocument.model_validate(fact.document)
    key = QueueKey(TenantId(fact.tenant or ""), fact.name)
    known = view.queues.get(key)
    if known is not None and known.generation >= generation:
        return view
    nominal = {quota.gpu_class: quota.nominal for quota in document.spec.quotas}
    preempts = document.spec.preemption.within_queue == "LowerPriority"
    queue = Queue(key, document.spec.order == "StrictFIFO", nominal, generation, preempts)
    return replace(view, queues=_with(view.queues, key, queue))


def _came_back(view: View, fact: GrantFact) -> View:
    """Return the view after a job that was to come back has its devices: nothing more is held for it."""
    job = current(view, fact.job, fact.attempt) if isinstance(fact, GrantIssued) else None
    if job is None or job.recovery is None:
        return view
    return replace(view, jobs=_with(view.jobs, job.id, replace(job, recovery=None)))


def _answered(view: View, fact: GrantFact) -> View:
    """What placement says about an attempt settles its charge.

    Of an attempt that is over only the end of the charge is an answer: until then its end is said again (R10).
    """
    charge = view.charges.get((fact.job, fact.attempt))
    if charge is None or charge.over:
        return view
    heard = charge.answered or _is_current(view, charge)
    match fact:
        case GrantIssued():
            changed = replace(charge, granted=True, answered=heard)
        case GrantRevoked():
            lost = fact.reason.code is Code.NODE_LOST
            account = Account.PLATFORM_LOSS if lost else charge.account
            over = not (fact.nodes or fact.alone)  # nothing was claimed: nothing waits for a proof
            changed = replace(charge, granted=True, answered=heard or over, account=account, over=over)
        case GrantSuspected():
            changed = _suspected(charge, fact) if fact.reason.code in UNPROVED else charge
        case GrantRefused():
            changed = replace(charge, answered=heard or fact.final, over=fact.final)
        case GrantReleased():
            over = fact.remaining == 0
            released = _with(charge.released, fact.node, len(fact.devices))
            changed = replace(charge, granted=True, answered=heard or over, over=over, released=released)
        case _:
            assert_never(fact)
    return _recharged(view, charge, changed)


def _suspected(charge: Charge, fact: GrantSuspected) -> Charge:
    """The loss of a part whose proof is overdue is the platform's (R10), or of all, where the fact names no devices."""
    if not fact.devices:
        return replace(charge, account=Account.PLATFORM_LOSS)
    return replace(charge, lost=_with(charge.lost, fact.node, len(fact.devices)))


def _is_current(view: View, charge: Charge) -> bool:
    job = view.jobs.get(charge.job)
    return job is not None and job.attempt == charge.attempt and not job.ended


def booked(charge: Charge) -> int:
    """Return the devices that a charge books on its queue."""
    return 0 if charge.over or charge.account is not Account.QUEUE else charge.unsettled


def _recharged(view: View, before: Charge | None, after: Charge) -> View:
    account = (after.queue, after.gpu_class)
    change = booked(after) - (booked(before) if before else 0)
    return replace(
        view,
        charges=_with(view.charges, (after.job, after.attempt), after),
        used=_with(view.used, account, view.used.get(account, 0) + change),
    )


def _said(view: View, fact: Said, now: datetime) -> View:
    job = _after(view.jobs[fact.job], fact, now)
    view = replace(view, jobs=_with(view.jobs, job.id, job))
    identity = fact_id(fact_type(type(fact)), job.id, job.version)
    if isinstance(fact, JobQuotaReserved):
        charge = Charge(job.id, job.attempt, job.queue, fact.gpu_class, fact.devices, identity)
        return _recharged(view, None, charge)
    known = view.charges.get((fact.job, fact.attempt))
    if known is None or isinstance(fact, JobQueued | JobHeld | JobRequeued):
        return view
    return _recharged(view, known, replace(known, fact=identity, answered=False))


def _after(job: Job, fact: Said, now: datetime) -> Job:
    """Return the job after a fact said of it."""
    job = replace(job, version=job.version + 1)
    match fact:
        case JobAdmitted():
            admitted = replace(job, state=JobState.ADMITTED, reason=None, preemption=None)
            return replace(admitted, not_before=None, admitted_at=now)
        case JobHeld():
            return replace(job, reason=fact.reason, not_before=None, preemption=fact.preemption)
        case JobEvicted():
            users, ours = fault_of(fact.reason.code) is Fault.USER, fact.reason.code is not Code.PREEMPTED
            evictions = job.evictions + (ours and not users)
            return replace(job, failures=job.failures + users, evictions=evictions, admitted_at=None)
        case JobRequeued():
            home = replace(job, state=JobState.QUEUED, attempt=fact.attempt)
            return replace(home, reason=fact.reason, not_before=fact.not_before, recovery=fact.recovery)
        case JobRejected() | JobCancelled() | JobFinished():
            return replace(job, state=_end(fact), reason=fact.reason, preemption=None, recovery=None)
        case _:
            return job


def _end(fact: JobRejected | JobCancelled | JobFinished) -> JobState:
    if isinstance(fact, JobFinished):
        return JobState(fact.outcome.value)
    return JobState.CANCELLED if isinstance(fact, JobCancelled) else JobState.REJECTED


def current(view: View, job: JobId, attempt: int) -> Job | None:
    """Return the job if this is its current attempt and it has no end yet (R8: everything else is dropped)."""
    known = view.jobs.get(job)
    return known if known is not None and known.attempt == attempt and not known.ended else None
