"""Who may start: priority, then first come first served, inside each queue's nominal quota."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from schemas.lifecycle import JobState
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import JobAdmitted, JobHeld, JobQuotaReserved
from services.admission.core.evolve import Said
from services.admission.core.view import Job, Queue, QueueKey, View


def admit(view: View, queues: Iterable[QueueKey], *, now: datetime) -> Iterator[Said]:
    """Yield reservations with their admissions, and a reason for each job that waits (when it changed).

    StrictFIFO: behind a job that does not fit nobody of its queue is admitted. BestEffortFIFO: smaller ones pass.
    Jobs in backoff are as if they were not there. O(pending jobs of these queues).
    """
    waiting: dict[QueueKey, list[Job]] = {key: [] for key in queues}
    for job in view.jobs.values():
        ready = job.state is JobState.QUEUED and job.version and not job.in_backoff(now)
        if ready and job.queue in waiting:
            waiting[job.queue].append(job)
    for key in sorted(waiting):
        yield from _cycle(view, view.queues.get(key), sorted(waiting[key], key=_order))


def _order(job: Job) -> tuple[int, datetime, str]:
    return -job.priority, job.queued_at, job.id  # the id breaks ties, so replays agree


def _cycle(view: View, queue: Queue | None, jobs: list[Job]) -> Iterator[Said]:
    if queue is None:
        for job in jobs:
            yield from _held(
                job, reason(Layer.ADMISSION, Code.QUEUE_UNKNOWN, f"queue {job.queue.name} is not declared")
            )
        return
    free = {name: nominal - view.used.get((queue.key, name), 0) for name, nominal in queue.nominal.items()}
    blocked = False
    for job in jobs:
        chosen = None if blocked else _class_with_room(job, free)
        if chosen is None:
            blocked = blocked or queue.strict
            yield from _held(job, _why(job, queue, free))
            continue
        free[chosen] -= job.demand.devices
        yield from _admitted(job, chosen)


def _acceptable(job: Job, offered: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(name for name in job.demand.classes or offered if name in offered)


def _class_with_room(job: Job, free: Mapping[str, int]) -> str | None:
    asked = job.demand.devices
    return next((name for name in _acceptable(job, free) if free[name] >= asked), None)


def _why(job: Job, queue: Queue, free: Mapping[str, int]) -> Reason:
    classes, asked = _acceptable(job, free), job.demand.devices
    if not classes:
        text = f"class {', '.join(job.demand.classes)} is not offered in queue {queue.key.name}"
        return reason(Layer.ADMISSION, Code.CLASS_NOT_OFFERED, text, asked=asked)
    best = max(classes, key=lambda name: (queue.nominal[name], free[name]))
    nominal, used = queue.nominal[best], queue.nominal[best] - free[best]
    if asked > nominal:
        text = f"asks {asked} {best}, queue {queue.key.name} has a quota of {nominal}"
        return reason(Layer.ADMISSION, Code.EXCEEDS_QUOTA, text, asked=asked, nominal=nominal)
    text = f"queue {queue.key.name}: quota {nominal} {best}, used {used}, asked {asked}"
    return reason(Layer.ADMISSION, Code.WAITING_FOR_QUOTA, text, asked=asked, nominal=nominal, used=used)


def _held(job: Job, why: Reason) -> Iterator[JobHeld]:
    """Say why a job waits, once a code: what the numbers are now is the queue's business, whoever shows it."""
    if job.reason is not None and job.reason.code is why.code and job.not_before is None and _same_ask(job.reason, why):
        return
    yield JobHeld(job=job.id, attempt=job.attempt, tenant=job.queue.tenant, queue=job.queue.name, reason=why)


def _same_ask(before: Reason, after: Reason) -> bool:
    return all(before.numbers.get(word) == after.numbers.get(word) for word in ("asked", "nominal"))


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
