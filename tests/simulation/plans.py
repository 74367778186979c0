"""I8 of what jobs hold in queues: plans are whole, end as few as will do, and their room goes to nobody behind."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from schemas.base import Event
from schemas.ids import JobId
from schemas.lifecycle import JobState
from schemas.reasons import Code
from schemas.workload import JobQueued
from services.admission.core import Charge, Job, QueueKey, View
from services.admission.core.evolve import booked
from services.admission.core.preempt import may_preempt
from tests.simulation.store import BreachError

Line = tuple[QueueKey, str]


class Plans:
    """Looks at what admission committed, change by change. Raises BreachError."""

    def __init__(self) -> None:
        self._before = View()
        self._priorities: dict[JobId, int] = {}

    def hear(self, fact: Event) -> None:
        """Remember the priority that a job came with."""
        if isinstance(fact, JobQueued):
            self._priorities[fact.job] = fact.priority

    def check(self, view: View) -> None:
        """Check what changed since the last time."""
        before, self._before = self._before, view
        if before is view or not any(queue.preempts for queue in view.queues.values()):
            return
        due, holds = _due(view), _holds(view)
        if over := [line for line, devices in holds.items() if devices > due[line]]:
            raise BreachError(f"I8: more is held than there is and will be: {over}, {holds} of {due}")
        held = {job.id: job.preemption for job in before.jobs.values()}
        made = Counter(job.queue for job in _holding(view) if job.preemption != held.get(job.id))
        for victim in _newly_preempted(before, view):
            self._check_victim(victim, view, due, holds, alone=made[victim.queue] <= 1)
        for charge in _newly_charged(before, view):
            self._check_taken(charge, view, due)
            _check_kept(charge, view, due)

    def _check_victim(self, job: Job, view: View, due: Counter[Line], holds: Counter[Line], *, alone: bool) -> None:
        """Of several plans at once a later one may make the victim of an earlier one needless."""
        charge = view.charges[job.id, job.attempt - 1]
        own = self._priorities.get(job.id, job.priority)
        preemptors = [each for each in _holding(view) if each.queue == job.queue and each.priority > own]
        if not preemptors:
            raise BreachError(
                f"I8: {job.name} of priority {own} is ended, and nobody of higher priority holds its room"
            )
        line = charge.queue, charge.gpu_class
        if alone and booked(charge) <= due[line] - holds[line] - _awaited(line, own, view, due[line]):
            raise BreachError(f"I8: {job.name} is ended for nothing: its {charge.devices} devices would still fit")

    def _check_taken(self, charge: Charge, view: View, due: Counter[Line]) -> None:
        """Who is first in the queue and could have started soon loses that to nobody of lower priority."""
        first, line = _first(view, charge.queue), (charge.queue, charge.gpu_class)
        if first is None or first.priority <= view.jobs[charge.job].priority or not _wants(first, charge, view):
            return
        if due[line] < first.demand.devices <= due[line] + charge.devices:
            raise BreachError(f"I8: {view.jobs[charge.job].name} takes the room that {first.name} waits for")


def _check_kept(charge: Charge, view: View, due: Counter[Line]) -> None:
    """Nobody is admitted into the room that is held for one before him who lost a node, if that is still enough."""
    taker, line = view.jobs[charge.job], (charge.queue, charge.gpu_class)
    left = due[line] + charge.devices
    for job in sorted(view.jobs.values(), key=_order):
        held = job.recovery.devices if job.recovery and job.recovery.gpu_class == charge.gpu_class else 0
        waits = job.state is JobState.QUEUED and job.queue == charge.queue and job.id != taker.id
        if waits and _order(job) < _order(taker) and 0 < held <= left:  # what no longer fits behind others is not held
            left -= held
            if left < charge.devices:
                raise BreachError(f"I8: {taker.name} takes the room that {job.name} comes back to")


def _order(job: Job) -> tuple[int, datetime, str]:
    return -job.priority, job.queued_at, job.id


def _due(view: View) -> Counter[Line]:
    """Return what is free once all that is over has gone."""
    due = Counter({(q.key, name): nominal for q in view.queues.values() for name, nominal in q.nominal.items()})
    for charge in view.charges.values():
        job = view.jobs[charge.job]
        if job.state is JobState.ADMITTED and job.attempt == charge.attempt:
            due[charge.queue, charge.gpu_class] -= booked(charge)
    return due


def _holding(view: View) -> list[Job]:
    return [job for job in view.jobs.values() if job.preemption is not None and not job.preemption.given_up]


def _holds(view: View) -> Counter[Line]:
    holds: Counter[Line] = Counter()
    for job in _holding(view):
        if job.state is not JobState.QUEUED or job.preemption is None:
            raise BreachError(f"I8: {job.name} holds room and is {job.state.value}")
        holds[job.queue, job.preemption.gpu_class] += job.preemption.devices
    return holds


def _awaited(line: Line, above: int, view: View, due: int) -> int:
    """Return what may be kept for who waits without a plan, as it comes free by itself."""
    waiting = [job for job in view.jobs.values() if job.queue == line[0] and job.state is JobState.QUEUED]
    asked = [job.demand.devices for job in waiting if job.preemption is None and job.priority > above]
    return sum(devices for devices in asked if devices <= due)


def _newly_preempted(before: View, view: View) -> Iterator[Job]:
    for key, job in view.jobs.items():
        known = before.jobs.get(key)
        ended = known is not None and known.state is JobState.ADMITTED and known.attempt < job.attempt
        if ended and job.reason is not None and job.reason.code is Code.PREEMPTED:
            yield job


def _newly_charged(before: View, view: View) -> Iterator[Charge]:
    yield from (charge for key, charge in view.charges.items() if key not in before.charges)


def _first(view: View, key: QueueKey) -> Job | None:
    waiting = [job for job in view.jobs.values() if job.queue == key and job.state is JobState.QUEUED and job.version]
    return min(waiting, key=_order, default=None)


def _wants(job: Job, charge: Charge, view: View) -> bool:
    """Whether a job that may preempt waits for this class and no other."""
    queue, plan = view.queues[charge.queue], job.preemption
    if not may_preempt(job, queue) or job.not_before is not None or (plan is not None and plan.given_up):
        return False
    offered = [name for name in job.demand.classes or queue.nominal if name in queue.nominal]
    return plan.gpu_class == charge.gpu_class if plan else offered == [charge.gpu_class]
