"""Admission under test: its core in memory, and the service on real servers."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from libs.config import Infrastructure
from schemas.base import Event, fact_name
from schemas.lifecycle import JobState
from schemas.reasons import Code, Reason
from schemas.workload import GrantIssued, JobEvicted
from services.admission.app import build
from services.admission.core import Policy, QueueKey, View, admit, decide, evolve, overdue
from services.admission.core.evolve import lapse
from services.admission.settings import Settings
from tests.support.builders import ACME, NOON, a_grant, a_job_id, a_part, a_queue, a_submission, at, released

POLICY = Policy(backoff_seconds=1, backoff_limit_seconds=60, placement_deadline_seconds=600, preemption_seconds=600)
MAIN = QueueKey(ACME, "main")


@asynccontextmanager
async def admission(infrastructure: Infrastructure, **settings: float) -> AsyncIterator[None]:
    """Run the service with a quick clock."""
    service = build(infrastructure, Settings.model_validate({"clock_seconds": 0.1, **settings}))
    await service.start()
    try:
        yield
    finally:
        await service.stop()


@dataclass
class Desk:
    """Admission in memory, as its handlers do it. ``said``: all that it has said."""

    view: View = field(default_factory=View)
    said: list[Event] = field(default_factory=list)
    version: int = 0

    def hear(self, *facts: Event, now: datetime = NOON) -> list[str]:
        """Hear facts at a time and admit who fits; return what is said to that, in short."""
        start = len(self.said)
        for fact in facts:
            self.version += 1
            self.view = evolve(self.view, fact, version=self.version, now=now)
            self._say(decide(self.view, fact, POLICY, now=now), now)
        self.view = lapse(self.view, now=now)
        keys = self.view.queues.keys() | {job.queue for job in self.view.jobs.values()}
        self._say(admit(self.view, keys, POLICY, now=now), now)
        return [short(fact) for fact in self.said[start:]]

    def clock(self, now: datetime) -> list[str]:
        """Look at the clock; return what is said to that, in short."""
        start = len(self.said)
        self._say(overdue(self.view, POLICY, now=now), now)
        return [short(fact) for fact in self.said[start:]] + self.hear(now=now)

    def _say(self, facts: Iterable[Event], now: datetime) -> None:
        for fact in tuple(facts):
            self.said.append(fact)
            self.view = evolve(self.view, fact, version=0, now=now)

    def used(self, gpu_class: str = "h100") -> int:
        """Return the devices that the queue is charged."""
        return self.view.used.get((MAIN, gpu_class), 0)

    def state(self, name: str = "train") -> JobState:
        """Return the state of a job."""
        return self.view.jobs[a_job_id(name)].state

    def last(self, kind: type[Event]) -> Event:
        """Return the last fact of a kind that was said."""
        return next(fact for fact in reversed(self.said) if isinstance(fact, kind))


def short(fact: Event) -> str:
    """Return what a fact of admission says of its job, in a word or two."""
    return fact_name(type(fact)).removeprefix("workload.job.")


class Table(Desk):
    """Admission with a queue of one class in which jobs preempt each other, and the grants of its jobs."""

    def submit(self, name: str, devices: int, priority: int, seconds: float) -> list[str]:
        """Wish for a job; whoever is admitted is granted devices at once."""
        said = self.hear(a_submission(name, devices, priority=priority), now=at(seconds))
        self.grant(seconds)
        return said

    def grant(self, seconds: float) -> None:
        """Hear grants of all that are admitted and have none."""
        for charge in self.view.charges.values():
            if not charge.granted and not charge.over:
                name = self.view.jobs[charge.job].name
                self.hear(the_grant(name, charge.attempt, charge.devices), now=at(seconds))

    def gone(self, name: str, attempt: int = 1, seconds: float = 100) -> list[str]:
        """Hear the proof that an attempt's devices are clear."""
        devices = self.view.charges[a_job_id(name), attempt].devices
        said = self.hear(released(the_grant(name, attempt, devices)), now=at(seconds))
        self.grant(seconds)
        return said

    def evicted(self) -> list[str]:
        """Return the names of the preempted, in order."""
        evictions = [f for f in self.said if isinstance(f, JobEvicted) and f.reason.code is Code.PREEMPTED]
        return [self.view.jobs[fact.job].name for fact in evictions]

    def why(self, name: str) -> Reason:
        """Return why a job waits."""
        found = self.view.jobs[a_job_id(name)].reason
        assert found is not None
        return found

    def admitted(self) -> set[str]:
        """Return the names of those that are admitted."""
        return {job.name for job in self.view.jobs.values() if job.state is JobState.ADMITTED}


def the_grant(name: str, attempt: int, devices: int) -> GrantIssued:
    """Return the grant of an attempt: one part."""
    return a_grant(name, a_part(devices=devices), attempt=attempt)


def a_table(devices: int = 8, *, strict: bool = False, preempts: bool = True) -> Table:
    """Return a table with its queue declared."""
    table = Table()
    table.hear(a_queue(strict=strict, preempts=preempts, h100=devices))
    return table
