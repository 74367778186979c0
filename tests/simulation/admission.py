"""Admission in memory: the turns of its handlers, each on the part of the view that the store would load."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final
from uuid import UUID

from schemas.base import Envelope
from schemas.ids import JobId
from schemas.lifecycle import JobState
from services.admission.core import Charge, Job, Queue, QueueKey, View, admit, decide, evolve, overdue
from services.admission.core.evolve import Said, booked, lapse
from services.admission.handlers import GRANTS, MAKES_ROOM, _queue_of, wished
from services.admission.settings import Settings
from tests.simulation.ground import Ground
from tests.simulation.host import Host, listen
from tests.simulation.store import Store, Turn

AttemptKey = tuple[JobId, int]
NOTHING: Final[Mapping[QueueKey, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Desks:
    """The whole view, and when each charge was last changed."""

    view: View = field(default_factory=View)
    changed_at: dict[AttemptKey, datetime] = field(default_factory=dict)


class AdmissionDesk:
    """The turns."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.policy = settings.policy()

    def workload(self, turn: Turn[Desks], batch: Sequence[Envelope]) -> None:
        """Hear requests, grants and runs; admit into whatever room that made."""
        jobs = {job for job in (getattr(envelope.data, "job", None) for envelope in batch) if job is not None}
        keys = {key for key in map(_queue_of, batch) if key is not None}
        makes_room = any(isinstance(envelope.data, MAKES_ROOM) for envelope in batch)
        before = self.load(turn, keys, jobs, makes_room=makes_room, wished=wished(batch))
        view = before
        for envelope in batch:
            view = evolve(view, envelope.data, version=envelope.version, now=turn.now)
            view = self._say(turn, view, decide(view, envelope.data, self.policy, now=turn.now), envelope)
        self._close(turn, before, view)

    def again(self, turn: Turn[Desks], batch: Sequence[Envelope]) -> None:
        """Say once more how attempts ended whose grants are told again."""
        view = turn.state.view
        for key in sorted({(e.data.job, e.data.attempt) for e in batch if isinstance(e.data, GRANTS)}):
            job, charge = view.jobs.get(key[0]), view.charges.get(key)
            if job is not None and charge is not None and (job.ended or key[1] < job.attempt):
                turn.say_again([charge.fact])

    def clock(self, turn: Turn[Desks]) -> None:
        """Let go what waited too long for devices and take up whose backoff is over."""
        whole = turn.state.view
        late = [job.id for job in whole.jobs.values() if self._is_late(whole, job, turn.now)]
        due = {job.queue for job in whole.jobs.values() if _is_due(job, turn.now) or self._is_held_long(job, turn.now)}
        if late or due:
            before = self.load(turn, due, late, makes_room=True)
            view = self._say(turn, before, overdue(before, self.policy, now=turn.now), None)
            self._close(turn, before, view)

    def unanswered(self, turn: Turn[Desks]) -> list[UUID]:
        """Return the facts that placement was not heard on."""
        before = turn.now - timedelta(seconds=self.settings.sweep_seconds / 2)
        changed_at = turn.state.changed_at
        return [
            charge.fact
            for key, charge in turn.state.view.charges.items()
            if not charge.over and not charge.answered and changed_at[key] <= before
        ]

    def load(
        self,
        turn: Turn[Desks],
        keys: Collection[QueueKey],
        jobs: Collection[JobId],
        *,
        makes_room: bool,
        wished: Mapping[QueueKey, int] = NOTHING,
    ) -> View:
        """Return what the store would load: the named jobs and queues, and who waits where there may be room."""
        whole = turn.state.view
        names = sorted({*keys, *(whole.jobs[job].queue for job in jobs if job in whole.jobs)})
        queues = {name: whole.queues[name] for name in names if name in whole.queues}
        found = {job: whole.jobs[job] for job in sorted(jobs) if job in whole.jobs}
        found |= {job.id: job for job in whole.jobs.values() if _holds(job) and job.queue in names}
        preempting = {key for key, queue in queues.items() if queue.preempts}
        roomy = {key for key in names if makes_room or key in preempting or _has_room(queues.get(key), whole)}
        if roomy:
            waiting = [job for job in whole.jobs.values() if job.queue in roomy and _waits(job, turn.now)]
            found |= {job.id: job for job in sorted(waiting, key=_order)}
        below = {key: priority for key, priority in wished.items() if key in preempting}
        found |= _lower(whole, found, preempting, below)
        counted = preempting | {job.queue for job in found.values() if job.recovery}
        return View(
            queues=queues,
            jobs=found,
            charges={key: each for key, each in whole.charges.items() if _concerns(found.get(key[0]), each)},
            used={account: devices for account, devices in whole.used.items() if account[0] in names},
            withdrawn={job: whole.withdrawn[job] for job in sorted(jobs) if job in whole.withdrawn},
            leaving=_leaving(whole, found, counted),
        )

    def _close(self, turn: Turn[Desks], before: View, view: View) -> None:
        keys = {job.queue for job in view.jobs.values()}
        view = lapse(view, now=turn.now)
        view = self._say(turn, view, admit(view, keys, self.policy, now=turn.now), None)
        whole = turn.state.view
        changed = {key: turn.now for key, each in view.charges.items() if before.charges.get(key) is not each}
        turn.state = Desks(
            replace(
                whole,
                queues={**whole.queues, **view.queues},
                jobs={**whole.jobs, **view.jobs},
                charges={**whole.charges, **view.charges},
                used={**whole.used, **view.used},
                withdrawn={**whole.withdrawn, **view.withdrawn},
            ),
            {**turn.state.changed_at, **changed},
        )

    def _say(self, turn: Turn[Desks], view: View, facts: Iterable[Said], cause: Envelope | None) -> View:
        for fact in tuple(facts):
            view = evolve(view, fact, version=0, now=turn.now)
            job = view.jobs[fact.job]
            turn.emit(fact, scope=job.queue.tenant, key=job.id, version=job.version, cause=cause)
        return view

    def _is_held_long(self, job: Job, now: datetime) -> bool:
        if job.recovery is not None and job.recovery.until <= now:
            return True
        plan, seconds = job.preemption, self.settings.preemption_seconds
        return plan is not None and now - plan.since >= timedelta(seconds=seconds * (1 + plan.given_up))

    def _is_late(self, view: View, job: Job, now: datetime) -> bool:
        charge = view.charges.get((job.id, job.attempt))
        waits = job.state is JobState.ADMITTED and charge is not None and not charge.granted and not charge.over
        limit = now - timedelta(seconds=self.settings.placement_deadline_seconds)
        return waits and job.admitted_at is not None and job.admitted_at <= limit and not job.comes_back(now)


class Admission(Host[Desks]):
    """The process."""

    def __init__(self, store: Store[Desks], ground: Ground, desk: AdmissionDesk) -> None:
        super().__init__(store, ground)
        self.loop(lambda: self.turn(desk.clock), desk.settings.clock_seconds)
        self.sweep(desk.unanswered, desk.settings.sweep_seconds)
        listen([self], "admission-workload", [desk.workload], desk.again)


def _holds(job: Job) -> bool:
    return job.preemption is not None or job.recovery is not None


def _concerns(job: Job | None, charge: Charge) -> bool:
    return job is not None and (not charge.over or charge.attempt == job.attempt)


def _lower(
    whole: View, found: Mapping[JobId, Job], preempting: Collection[QueueKey], below: dict[QueueKey, int]
) -> dict[JobId, Job]:
    for job in found.values():
        if job.queue in preempting and job.state is JobState.QUEUED:
            below[job.queue] = max(below.get(job.queue, job.priority), job.priority)
    admitted = [job for job in whole.jobs.values() if job.state is JobState.ADMITTED and job.id not in found]
    return {job.id: job for job in admitted if job.queue in below and job.priority < below[job.queue]}


def _leaving(
    whole: View, found: Mapping[JobId, Job], preempting: Collection[QueueKey]
) -> dict[tuple[QueueKey, str], int]:
    leaving: Counter[tuple[QueueKey, str]] = Counter()
    for charge in whole.charges.values():
        job = whole.jobs[charge.job]
        goes_on = job.state is JobState.ADMITTED and charge.attempt == job.attempt
        if charge.queue in preempting and job.id not in found and not goes_on:
            leaving[charge.queue, charge.gpu_class] += booked(charge)
    return leaving


def _order(job: Job) -> tuple[int, datetime, str]:
    return -job.priority, job.queued_at, job.id


def _waits(job: Job, now: datetime) -> bool:
    return job.state is JobState.QUEUED and (job.not_before is None or job.not_before <= now)


def _is_due(job: Job, now: datetime) -> bool:
    return job.state is JobState.QUEUED and job.not_before is not None and not job.in_backoff(now)


def _has_room(queue: Queue | None, view: View) -> bool:
    return queue is not None and any(
        nominal > view.used.get((queue.key, gpu_class), 0) for gpu_class, nominal in queue.nominal.items()
    )
