"""What admission says to a fact it hears: the next attempt, or the one end of the job."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from schemas.base import Event
from schemas.lifecycle import JobState
from schemas.reasons import NODE_GONE, Code, Fault, Layer, Reason, fault_of, reason
from schemas.workload import (
    GrantRefused,
    GrantRevoked,
    JobCancelled,
    JobEvicted,
    JobFinished,
    JobQueued,
    JobRequeued,
    Outcome,
    Recovery,
    RequestSubmitted,
    RequestWithdrawn,
    RunFailed,
    RunLost,
    RunSucceeded,
)
from services.admission.core.evolve import Said, current
from services.admission.core.view import Job, Policy, View

OWN_REVOCATIONS: Final = frozenset({Code.ATTEMPT_OVER, Code.RUN_ENDED})
"""Revocations that follow from a run's end or from what admission said itself: they close nothing."""
BACKEND: Final = "backend"
"""Who cancelled a job whose run was cancelled where it ran; the reason has the name."""


def decide(view: View, fact: Event, policy: Policy, *, now: datetime) -> Iterator[Said]:
    """Yield what is to be said to a fact that the view has already taken in. Facts of old attempts yield nothing."""
    match fact:
        case RequestSubmitted():
            yield from _queued(view, view.jobs[fact.job])
        case RequestWithdrawn():
            job = view.jobs.get(fact.job)
            if job is not None and not job.ended and job.version:
                yield _cancelled(job, fact.withdrawn_by, fact.message)
        case RunSucceeded() | RunFailed() | GrantRefused(final=True) | GrantRevoked() | RunLost():
            job = current(view, fact.job, fact.attempt)
            if job is not None and job.state is JobState.ADMITTED:
                yield from _after_attempt(job, fact, policy, now, _recovery(view, job, fact, now))
        case _:
            return


def overdue(view: View, policy: Policy, *, now: datetime) -> Iterator[Said]:
    """Yield evictions of attempts that waited for devices past their deadline, so that their quota serves others.

    Who comes back to room that is held for it waits as long as that is so.
    """
    limit = timedelta(seconds=policy.placement_deadline_seconds)
    for job in view.jobs.values():
        charge = view.charges.get((job.id, job.attempt))
        waiting = job.state is JobState.ADMITTED and charge is not None and not charge.granted
        if waiting and not job.comes_back(now) and job.admitted_at is not None and now - job.admitted_at >= limit:
            waited = int((now - job.admitted_at).total_seconds())
            text = f"no devices in {waited} s"
            yield from home(job, reason(Layer.ADMISSION, Code.PLACEMENT_TIMEOUT, text, waited=waited), policy, now)


def _queued(view: View, job: Job) -> Iterator[Said]:
    if job.version:
        return
    yield JobQueued(
        job=job.id,
        attempt=job.attempt,
        tenant=job.queue.tenant,
        name=job.name,
        queue=job.queue.name,
        priority=job.priority,
        demand=job.demand,
    )
    if job.id in view.withdrawn:
        yield _cancelled(job, view.withdrawn[job.id], "")


def _cancelled(job: Job, who: str, message: str, why: Reason | None = None) -> JobCancelled:
    return JobCancelled(
        job=job.id, attempt=job.attempt, tenant=job.queue.tenant, cancelled_by=who, message=message, reason=why
    )


def _finished(job: Job, outcome: Outcome, *, exit_code: int | None, why: Reason | None = None) -> JobFinished:
    return JobFinished(
        job=job.id, attempt=job.attempt, tenant=job.queue.tenant, outcome=outcome, exit_code=exit_code, reason=why
    )


def _recovery(view: View, job: Job, fact: Event, now: datetime) -> Recovery | None:
    """Return what is held for a job whose grant ended since a node of it is gone, if its document says for how long."""
    seconds, charge = job.demand.recovery_seconds, view.charges.get((job.id, job.attempt))
    if not isinstance(fact, GrantRevoked) or fact.reason.code not in NODE_GONE or seconds is None or charge is None:
        return None
    until = min(fact.revoked_at, now) + timedelta(seconds=seconds)
    return Recovery(gpu_class=charge.gpu_class, devices=job.demand.devices, until=until)


def _after_attempt(
    job: Job,
    fact: RunSucceeded | RunFailed | GrantRefused | GrantRevoked | RunLost,
    policy: Policy,
    now: datetime,
    recovery: Recovery | None,
) -> Iterator[Said]:
    """A user's failure uses up a retry; a cancel at the backend is a cancel; anything else brings the job home."""
    if isinstance(fact, RunSucceeded):
        yield _finished(job, Outcome.SUCCEEDED, exit_code=0)
        return
    if fact.reason.code is Code.BACKEND_CANCELLED:
        yield _cancelled(job, BACKEND, fact.reason.message, fact.reason)
        return
    users = isinstance(fact, RunFailed) and fault_of(fact.reason.code) is Fault.USER
    if isinstance(fact, RunFailed) and users and job.failures >= job.retries:
        yield _finished(job, Outcome.FAILED, exit_code=fact.exit_code, why=fact.reason)
    elif fact.reason.code not in OWN_REVOCATIONS:
        yield from home(job, fact.reason, policy, now, recovery)


def home(job: Job, why: Reason, policy: Policy, now: datetime, recovery: Recovery | None = None) -> Iterator[Said]:
    """Yield what brings the job home as its next attempt, later and later; what was preempted did nothing wrong."""
    tries = 0 if why.code is Code.PREEMPTED else job.failures + job.evictions
    wait = min(policy.backoff_seconds * 2 ** min(tries, 20), policy.backoff_limit_seconds)
    yield JobEvicted(job=job.id, attempt=job.attempt, tenant=job.queue.tenant, reason=why)
    yield JobRequeued(
        job=job.id,
        attempt=job.attempt + 1,
        tenant=job.queue.tenant,
        queue=job.queue.name,
        not_before=now + timedelta(seconds=wait),
        reason=why.model_copy(update={"retry_after_seconds": wait}),
        recovery=recovery,
    )
