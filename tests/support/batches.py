"""A batch of short jobs of every kind, handed in while something may be down, and the one right end of each."""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.errors import UnreachableError
from libs.client.models import Job
from schemas.spec.base import Metadata
from schemas.spec.job import Job as Document
from schemas.spec.job import JobSpec
from tests.support.eventually import eventually
from tests.support.work_log import Process, WorkLog

T = TypeVar("T")
QUEUE = "main"
SECONDS = "0.2"  # that a job takes
ENDLESS = "600"  # of those that are to be cancelled
PIECE, UNDER_WAY = 10, 60
PATIENCE_SECONDS = 120
ASK_SECONDS = 0.25  # between two questions
LOOK_SECONDS = 0.1  # between two looks at the log


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended."""

    state: str
    attempt: int = 1
    exit_code: int | None = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """What a job asks for, and how it has to end."""

    name: str
    ending: Ending
    replicas: int = 1
    devices: int = 1
    retries: int = 0
    arguments: tuple[str, ...] = (SECONDS,)


DONE, GONE = Ending("Succeeded"), Ending("Cancelled", exit_code=None)
SINGLE, PAIR = Kind("single", DONE), Kind("pair", DONE, devices=2)
GANG = Kind("gang", DONE, replicas=2, devices=3)  # of nodes with four devices it needs two
FLAKY = Kind("flaky", Ending("Succeeded", attempt=2), retries=1, arguments=(SECONDS, "1"))
FAILING = Kind("failing", Ending("Failed", attempt=2, exit_code=3), retries=1, arguments=(SECONDS, "9"))
UNWANTED = Kind("unwanted", GONE, arguments=(ENDLESS,))  # cancelled as soon as it is handed in
STOPPED = Kind("stopped", GONE, arguments=(ENDLESS,))  # cancelled when it runs
MIX = (*[SINGLE] * 5, UNWANTED, GANG, SINGLE, PAIR, FLAKY, SINGLE, SINGLE, GANG, STOPPED, *[SINGLE] * 4, FAILING, PAIR)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One job of a batch."""

    name: str
    tenant: str
    kind: Kind

    def document(self, workdir: str) -> str:
        """Return what is handed in."""
        spec = JobSpec(
            queue=QUEUE,
            replicas=self.kind.replicas,
            devices_per_replica=self.kind.devices,
            retries=self.kind.retries,
            workdir=workdir,
            command=("sh", "work.sh", *self.kind.arguments),
        )
        metadata = Metadata(name=self.name, tenant=self.tenant)
        return Document(metadata=metadata, spec=spec).model_dump_json(exclude_none=True)


@dataclass
class Batch:
    """The jobs of one tenant, all kinds mixed all the way, on the way through a stack."""

    tenant: str
    count: int
    admin: AsyncClient
    work_log: WorkLog
    mix: Sequence[Kind] = MIX
    at_once: int = PIECE  # jobs handed in together
    under_way: int = UNDER_WAY  # jobs that may wait for their start
    jobs: list[Wanted] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        kinds = [self.mix[number % len(self.mix)] for number in range(self.count)]
        self.jobs = [Wanted(f"{self.tenant}-{n:03}-{kind.name}", self.tenant, kind) for n, kind in enumerate(kinds)]

    def processes(self) -> list[Process]:
        """Return what the jobs' processes have noted so far."""
        return self.work_log.read(f"{self.tenant}-")

    def begun(self) -> set[str]:
        """Return the jobs that have begun so far."""
        return {process.job for process in self.processes()}

    async def reached(self, share: float, seconds: float) -> None:
        """Wait until so large a share of the jobs has begun."""
        await eventually(lambda: len(self.begun()) >= share * self.count, seconds, every=LOOK_SECONDS)

    async def hand_in(self, gpu_class: str, quota: int, seconds: float) -> None:
        """Hand in all, piece by piece, so that some are always under way; cancel what has to be cancelled."""
        await _patiently(partial(self.admin.ask, calls.create_tenant(self.tenant)))
        await self._submit([_queue(self.tenant, gpu_class, quota)])
        for start in range(0, self.count, self.at_once):
            await eventually(partial(self._has_room, start), seconds, every=LOOK_SECONDS)
            piece = self.jobs[start : start + self.at_once]
            await self._submit([job.document(str(self.work_log.folder)) for job in piece])
            await self._cancel(job for job in piece if job.kind is UNWANTED)
        await eventually(self._all_stopped, seconds, every=LOOK_SECONDS)

    async def wrong(self, seconds: float) -> list[str]:
        """Wait until all jobs have ended; return every one that is not at its one right end."""
        listed: dict[str, Job] = {}

        async def all_over() -> bool:
            page = await _patiently(lambda: self.admin.ask(calls.jobs(tenant=self.tenant, limit=1_000)))
            listed.update({job.name: job for job in page.items})
            return len(listed) == self.count and all(job.ended for job in listed.values())

        with contextlib.suppress(AssertionError):
            await eventually(all_over, seconds, every=ASK_SECONDS)
        return list(_wrong(self.jobs, listed))

    async def _has_room(self, handed_in: int) -> bool:
        begun = self.begun()
        await self._cancel(job for job in self.jobs if job.kind is STOPPED and job.name in begun)
        return handed_in - len(begun | self.cancelled) <= self.under_way

    async def _all_stopped(self) -> bool:
        await self._has_room(0)
        return all(job.name in self.cancelled for job in self.jobs if job.kind is STOPPED)

    async def _submit(self, documents: Sequence[str]) -> None:
        text = "\n---\n".join(documents).encode()
        answer = await _patiently(partial(self.admin.ask, calls.submit(text)))
        assert [fault for result in answer.results for fault in result.faults] == []

    async def _cancel(self, jobs: Iterable[Wanted]) -> None:
        for job in jobs:
            if job.name not in self.cancelled:
                await _patiently(partial(self.admin.ask, calls.cancel(job.name, tenant=self.tenant)))
                self.cancelled.add(job.name)


def _queue(tenant: str, gpu_class: str, quota: int) -> str:
    return f"""
apiVersion: triplane/v1
kind: Queue
metadata: {{name: {QUEUE}, tenant: {tenant}}}
spec: {{quotas: [{{class: {gpu_class}, nominal: {quota}}}]}}
"""


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again while nobody answers, as people do."""
    answers: list[T] = []

    async def answered() -> bool:
        try:
            answers.append(await ask())
        except UnreachableError as error:
            raise AssertionError(str(error)) from error
        return True

    await eventually(answered, PATIENCE_SECONDS, every=ASK_SECONDS)
    return answers[0]


def _wrong(jobs: Iterable[Wanted], listed: Mapping[str, Job]) -> Iterator[str]:
    for wanted in jobs:
        job = listed.get(wanted.name)
        if job is None:
            yield f"{wanted.name} is not there"
        elif (seen := Ending(job.state, job.attempt, job.exit_code)) != wanted.kind.ending:
            yield f"{wanted.name} is {seen}, {job.id}, {job.reason}"
