"""Who may start: priority, then first come first served, inside each queue's nominal quota."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from schemas.ids import JobId
from schemas.lifecycle import JobState
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import JobAdmitted, JobHeld, JobQuotaReserved, Preemption
from services.admission.core.evolve import Said, booked
from services.admission.core.preempt import Live, Room, acceptable, books, may_preempt, preempted, standing
from services.admission.core.view import Job, Policy, QueueKey, View

JOBS_NAMED: Final = 3  # for whom something is held, in one message
OF_THE_JOB: Final = ("asked", "nominal", "victims", "coming", "held")  # numbers that are said again when they change


def admit(view: View, queues: Iterable[QueueKey], policy: Policy, *, now: datetime) -> Iterator[Said]:
    """Yield reservations with their admissions, whom they preempt, and why each other job waits (when that changed).

    StrictFIFO: behind a job that does not fit nobody of its queue is admitted. BestEffortFIFO: smaller ones pass.
    Jobs in backoff are as if they were not there, but for what is held for those that come back; a job with an attempt
    before that is not proved over does not fit yet. O(jobs and charges of these queues in the view).
    """
    waiting: dict[QueueKey, list[Job]] = {key: [] for key in queues}
    for job in view.jobs.values():
        ready = job.state is JobState.QUEUED and job.version and (job.recovery or not job.in_backoff(now))
        if ready and job.queue in waiting:
            waiting[job.queue].append(job)
    kept, leaving = books(view, waiting), _leaving(view)
    for key in sorted(waiting):
        queue, jobs = view.queues.get(key), sorted(waiting[key], key=_order)
        if queue is None:
            yield from _unknown(jobs)
        else:
            yield from _cycle(Room(view, queue, kept.get(key)), jobs, leaving, policy, now)


def _leaving(view: View) -> dict[JobId, int]:
    """Return the devices that attempts before the current one still keep, neither proved free nor given up (R10).

    The next one would run beside them.
    """
    kept: dict[JobId, int] = {}
    for charge in view.charges.values():
        if charge.attempt < view.jobs[charge.job].attempt and (devices := booked(charge)):
            kept[charge.job] = kept.get(charge.job, 0) + devices
    return kept


def _order(job: Job) -> tuple[int, datetime, str]:
    return -job.priority, job.queued_at, job.id  # the id breaks ties, so replays agree


def _unknown(jobs: Iterable[Job]) -> Iterator[JobHeld]:
    for job in jobs:
        yield from _held(job, reason(Layer.ADMISSION, Code.QUEUE_UNKNOWN, f"queue {job.queue.name} is not declared"))


def _cycle(
    room: Room, jobs: Iterable[Job], leaving: Mapping[JobId, int], policy: Policy, now: datetime
) -> Iterator[Said]:
    blocked = False
    for job in jobs:
        room.reach(job)
        if job.in_backoff(now):
            room.keep(job)
            continue
        chosen = None if blocked or job.id in leaving else room.fitting(job)
        if chosen is None:
            if job.id in leaving:
                room.keep(job)
                yield from _held(job, _not_over(leaving[job.id]))
            else:
                yield from _waits(job, room, policy, now, blocked=blocked)
            blocked = blocked or room.queue.strict
            continue
        room.take(chosen, job.demand.devices)
        yield from _admitted(job, chosen)


def _not_over(devices: int) -> Reason:
    text = f"an attempt before is not proved over: {devices} devices"
    return reason(Layer.ADMISSION, Code.WAITING_FOR_RELEASE, text, devices=devices)


def _waits(job: Job, room: Room, policy: Policy, now: datetime, *, blocked: bool) -> Iterator[Said]:
    """Keep the job's plan or what it comes back to, make a plan, or say what the job waits for without one."""
    if job.preemption is None and job.recovery is not None:
        why = _why(job, room, None)  # before its own room is counted to what is held
        if room.keep(job):
            yield from _held(job, why)
            return
    plan = standing(job, room, policy, now)
    if plan is None and not blocked and may_preempt(job, room.queue):
        plan, victims = _planned(job, room, now)
        for victim in victims:
            yield from preempted(victim.job, job, policy, now)
    if plan is None or plan.given_up:
        yield from _held(job, _why(job, room, plan), plan)
    else:
        yield from _held(job, _preempts(plan, room.queue.nominal[plan.gpu_class], coming=room.hold(plan)), plan)


def _planned(job: Job, room: Room, now: datetime) -> tuple[Preemption | None, list[Live]]:
    found = room.plan(job)
    if found is None:
        room.expect(job)
        return None, []
    gpu_class, victims = found
    room.end(victims)
    return Preemption(gpu_class=gpu_class, devices=job.demand.devices, victims=len(victims), since=now), victims


def _preempts(plan: Preemption, nominal: int, *, coming: int) -> Reason:
    text = (
        f"{plan.victims} jobs of lower priority ended for it: {coming} of {plan.devices} {plan.gpu_class} still to come"
    )
    numbers = {"asked": plan.devices, "nominal": nominal, "victims": plan.victims, "coming": coming}
    why = reason(Layer.ADMISSION, Code.WAITING_FOR_PREEMPTED_WORKLOADS, text, **numbers)
    return why.model_copy(update={"since": plan.since})


def _why(job: Job, room: Room, given_up: Preemption | None) -> Reason:
    queue, free = room.queue, room.free
    classes, asked = acceptable(job, free), job.demand.devices
    if not classes:
        text = f"class {', '.join(job.demand.classes)} is not offered in queue {queue.key.name}"
        return reason(Layer.ADMISSION, Code.CLASS_NOT_OFFERED, text, asked=asked)
    best = max(classes, key=lambda name: (queue.nominal[name], free[name]))
    nominal, used = queue.nominal[best], queue.nominal[best] - free[best]
    if asked > nominal:
        text = f"asks {asked} {best}, queue {queue.key.name} has a quota of {nominal}"
        return reason(Layer.ADMISSION, Code.EXCEEDS_QUOTA, text, asked=asked, nominal=nominal)
    text = f"queue {queue.key.name}: quota {nominal} {best}, used {used}, asked {asked}"
    numbers = {"asked": asked, "nominal": nominal, "used": used}
    held, kept, code = room.held[best], room.kept[best], Code.WAITING_FOR_QUOTA
    if held and asked <= free[best]:
        numbers = {**numbers, "held": held}
        text += f", {held} held for {', '.join(kept[:JOBS_NAMED])}" if kept else f", held for preemptors {held}"
        code = Code.HELD_FOR_RECOVERY if kept else code
    if given_up is not None:
        text = f"{text}; what {given_up.victims} preempted jobs had did not come free in time"
    return reason(Layer.ADMISSION, code, text, **numbers)


def _held(job: Job, why: Reason, plan: Preemption | None = None) -> Iterator[JobHeld]:
    """Say why a job waits, once a code: what the numbers are now is the queue's business, whoever shows it."""
    before = job.reason
    same = before is not None and before.code is why.code and job.not_before is None and job.preemption == plan
    if same and before is not None and _same_ask(before, why):
        return
    yield JobHeld(
        job=job.id,
        attempt=job.attempt,
        tenant=job.queue.tenant,
        queue=job.queue.name,
        reason=why,
        preemption=plan,
    )


def _same_ask(before: Reason, after: Reason) -> bool:
    return all(before.numbers.get(word) == after.numbers.get(word) for word in OF_THE_JOB)


def _admitted(job: Job, gpu_class: str) -> Iterator[Said]:
    yield JobQuotaReserved(
        job=job.id,
        attempt=job.attempt,
        tenant=job.queue.tenant,
        queue=job.queue.name,
        gpu_class=gpu_class,
        devices=job.demand.devices,
    )
    yield JobAdmitted(
        job=job.id,
        attempt=job.attempt,
        tenant=job.queue.tenant,
        name=job.name,
        queue=job.queue.name,
        priority=job.priority,
        gpu_class=gpu_class,
        demand=job.demand,
        work=job.work,
        queued_at=job.queued_at,
    )
