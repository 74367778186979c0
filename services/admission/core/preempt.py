"""Who is ended for a job of higher priority in the same queue: a whole plan or none, and the room that is held for it.

A plan is made only if the job fits once all that is over has gone. Its room is counted with what other attempts that
are over still keep, so that nobody is ended for what comes free by itself, and no second one for whom ends slowly.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from schemas.lifecycle import JobState
from schemas.reasons import Code, Layer, reason
from schemas.workload import Preemption
from services.admission.core.decide import home
from services.admission.core.evolve import Said, booked
from services.admission.core.view import Job, Policy, Queue, QueueKey, View

HOMES: Final = 3  # a job that came home more often (it fits on no node, say) would end the same others again and again


@dataclass(frozen=True, slots=True)
class Live:
    """A job that runs or is on its way, with the devices that the queue is charged for it."""

    job: Job
    gpu_class: str
    devices: int


@dataclass(slots=True)
class Books:
    """What a queue is charged, told apart: attempts that go on, and by class what those that are over still keep."""

    live: list[Live] = field(default_factory=list)
    leaving: dict[str, int] = field(default_factory=dict)


def books(view: View, waiting: Mapping[QueueKey, Iterable[Job]]) -> dict[QueueKey, Books]:
    """Return the books of those of these queues in which jobs preempt each other, or one that waits comes back.

    O(charges of the view).
    """
    found = {
        key: Books()
        for key, jobs in waiting.items()
        if key in view.queues and (view.queues[key].preempts or any(job.recovery for job in jobs))
    }
    for (key, gpu_class), devices in view.leaving.items():
        if key in found:
            found[key].leaving[gpu_class] = devices
    for charge in view.charges.values() if found else ():
        book, devices, job = found.get(charge.queue), booked(charge), view.jobs[charge.job]
        if book is None or not devices:
            continue
        if job.state is JobState.ADMITTED and charge.attempt == job.attempt:
            book.live.append(Live(job, charge.gpu_class, devices))
        else:
            book.leaving[charge.gpu_class] = book.leaving.get(charge.gpu_class, 0) + devices
    return found


class Room:
    """A queue's room by class while a cycle goes through its jobs in order.

    ``free``: charged to nobody now. ``due``: what will be, once all that is over has gone, less what is held.
    ``kept``: for whom some of it is held that come back, and until when.
    """

    def __init__(self, view: View, queue: Queue, book: Books | None) -> None:
        self.queue = queue
        self.free = {name: nominal - view.used.get((queue.key, name), 0) for name, nominal in queue.nominal.items()}
        leaving = book.leaving if book else {}
        self.due = {name: free + leaving.get(name, 0) for name, free in self.free.items()}
        self.held = dict.fromkeys(self.free, 0)
        self.kept: dict[str, list[str]] = {name: [] for name in self.free}
        self._live = sorted(book.live, key=_first_to_go) if book else []
        self._awaited: list[tuple[Job, str]] = []

    def fitting(self, job: Job) -> str | None:
        """Return the first class in the job's order in which it fits beside all that is held."""
        asked = job.demand.devices
        fits = (name for name in acceptable(job, self.free) if min(self.free[name], self.due[name]) >= asked)
        return next(fits, None)

    def take(self, gpu_class: str, devices: int) -> None:
        """Charge devices."""
        self.free[gpu_class] -= devices
        self.due[gpu_class] -= devices

    def hold(self, plan: Preemption) -> int:
        """Hold the plan's room before all that come later; return how many devices of it are still to come free."""
        there = max(self.free[plan.gpu_class] - self.held[plan.gpu_class], 0)
        self.held[plan.gpu_class] += plan.devices
        self.due[plan.gpu_class] -= plan.devices
        return max(plan.devices - there, 0)

    def keep(self, job: Job) -> bool:
        """Hold what a job had that comes back, before all that come later; False: there is nothing, or not so much."""
        recovery = job.recovery
        if recovery is None or recovery.gpu_class not in acceptable(job, self.due):
            return False
        if self.due[recovery.gpu_class] < recovery.devices:
            return False
        self.held[recovery.gpu_class] += recovery.devices
        self.due[recovery.gpu_class] -= recovery.devices
        self.kept[recovery.gpu_class].append(f"job {job.name} until {recovery.until.isoformat(timespec='seconds')}")
        return True

    def expect(self, job: Job) -> None:
        """Note that enough comes free for the job by itself, if that is so."""
        left = self._left()
        fits = (name for name in acceptable(job, left) if left[name] >= job.demand.devices)
        self._awaited.extend((job, name) for name in islice(fits, 1))

    def reach(self, job: Job) -> None:
        """Give nothing of what jobs of higher priority await to this one: it would be ended for them at once."""
        for waits, name in self._awaited:
            if waits.priority > job.priority and self.due[name] >= waits.demand.devices:
                self.held[name] += waits.demand.devices
                self.due[name] -= waits.demand.devices
        self._awaited = [(waits, name) for waits, name in self._awaited if waits.priority <= job.priority]

    def plan(self, job: Job) -> tuple[str, list[Live]] | None:
        """Return a class, and whom to end so that the job fits there; None: nobody, as that is no help or no need."""
        asked, left = job.demand.devices, self._left()
        names = acceptable(job, left)
        if any(left[name] >= asked for name in names):
            return None
        for name in names:
            lower = [one for one in self._live if one.gpu_class == name and one.job.priority < job.priority]
            if victims := _enough(lower, asked - left[name]):
                return name, victims
        return None

    def _left(self) -> dict[str, int]:
        """Return what will be free for one who has to wait: equals before him await their part of it."""
        left = dict(self.due)
        for waits, name in self._awaited:
            left[name] -= waits.demand.devices
        return left

    def end(self, victims: list[Live]) -> None:
        """Count victims to what leaves."""
        gone = {one.job.id for one in victims}
        self._live = [one for one in self._live if one.job.id not in gone]
        for one in victims:
            self.due[one.gpu_class] += one.devices


def acceptable(job: Job, offered: Mapping[str, int]) -> tuple[str, ...]:
    """Return the classes that the job takes, in its order, of those that are offered."""
    return tuple(name for name in job.demand.classes or offered if name in offered)


def may_preempt(job: Job, queue: Queue) -> bool:
    """Whether others may be ended for the job."""
    return queue.preempts and job.failures + job.evictions <= HOMES


def standing(job: Job, room: Room, policy: Policy, now: datetime) -> Preemption | None:
    """Return the job's plan if it still helps; what takes too long is given up, and remembered for as long again."""
    plan = job.preemption
    if plan is None or not room.queue.preempts:
        return None
    age, limit = now - plan.since, timedelta(seconds=policy.preemption_seconds)
    if plan.given_up or age >= limit:
        return plan.model_copy(update={"given_up": True}) if age < 2 * limit else None
    offered = plan.gpu_class in acceptable(job, room.due)
    return plan if offered and room.due[plan.gpu_class] >= job.demand.devices else None


def preempted(victim: Job, preemptor: Job, policy: Policy, now: datetime) -> Iterator[Said]:
    """Yield what ends a victim's attempt and brings it home."""
    text = f"preempted by job {preemptor.name} of priority {preemptor.priority}, its own is {victim.priority}"
    numbers = {"priority": victim.priority, "preemptor_priority": preemptor.priority}
    yield from home(victim, reason(Layer.ADMISSION, Code.PREEMPTED, text, **numbers), policy, now)


def _first_to_go(one: Live) -> tuple[int, float, str]:
    admitted_at = one.job.admitted_at
    return one.job.priority, -admitted_at.timestamp() if admitted_at else 0.0, one.job.id


def _enough(candidates: list[Live], missing: int) -> list[Live]:
    """Return as many as are needed, the first to go first; none when all together are too few."""
    chosen: list[Live] = []
    for one in candidates:
        if missing <= 0:
            break
        chosen.append(one)
        missing -= one.devices
    if missing > 0:
        return []
    for one in reversed(chosen[:]):
        if one.devices <= -missing:
            chosen.remove(one)
            missing += one.devices
    return chosen
