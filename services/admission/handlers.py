"""What admission does in a turn: take the facts in, decide, admit who fits, write down, say it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Final
from uuid import UUID

from libs.bus.turn import Turn
from libs.errors import PoisonError
from libs.pg.pool import Connection
from libs.telemetry.metrics import Metrics
from schemas.base import Envelope
from schemas.calls import ChargesPage, PageQuery
from schemas.ids import JobId, TenantId
from schemas.workload import (
    GrantIssued,
    GrantRefused,
    GrantReleased,
    GrantRevoked,
    GrantSuspected,
    RequestApplied,
    RequestSubmitted,
)
from services.admission import store
from services.admission.core import Job, QueueKey, View, admit, decide, evolve, overdue
from services.admission.core.evolve import Said, lapse
from services.admission.settings import Settings

MAKES_ROOM: Final = (RequestApplied, GrantReleased, GrantRefused, GrantRevoked, GrantSuspected)
GRANTS: Final = (GrantIssued, GrantRefused, GrantRevoked, GrantReleased)


class Handlers:
    """The turns of admission."""

    def __init__(self, settings: Settings, numbers: "Numbers") -> None:
        self._settings, self._numbers = settings, numbers
        self._policy = settings.policy()

    async def workload(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Hear requests, grants and runs; admit into whatever room that made."""
        jobs = {job for job in (getattr(envelope.data, "job", None) for envelope in batch) if job is not None}
        keys = {key for key in map(_queue_of, batch) if key is not None}
        makes_room = any(isinstance(envelope.data, MAKES_ROOM) for envelope in batch)
        before = await self._load(turn, keys, jobs, makes_room=makes_room, wished=wished(batch))
        view = before
        for place, envelope in enumerate(batch):
            heard_at = turn.now + timedelta(microseconds=place)  # first come, first served inside a turn, too
            view = evolve(view, envelope.data, version=envelope.version, now=heard_at)
            view = self._say(turn, view, decide(view, envelope.data, self._policy, now=turn.now), envelope)
        await self._close(turn, before, view)

    async def again(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Say once more how attempts ended whose grants are told again: placement has not heard of the end."""
        told = {(e.data.job, e.data.attempt) for e in batch if isinstance(e.data, GRANTS)}
        if told:
            await turn.say_again(await store.ends(turn.connection, sorted(told)))

    async def clock(self, turn: Turn, heard_seconds: float) -> None:
        """Let go what waited too long for devices, if it could be heard of; take up whose backoff or hold is over."""
        deadline = timedelta(seconds=self._settings.placement_deadline_seconds)
        late = await store.overdue(turn.connection, turn.now - deadline, turn.now) if heard_seconds > 0 else []
        keys = await store.due(turn.connection, turn.now, preemption_seconds=self._settings.preemption_seconds)
        if not late and not keys:
            return
        before = await self._load(turn, keys, late, makes_room=True)
        view = self._say(turn, before, overdue(before, self._policy, now=turn.now), None)
        await self._close(turn, before, view)

    async def unanswered(self, turn: Turn) -> Sequence[UUID]:
        """Return the facts that placement was not heard on."""
        return await store.unanswered(turn.connection, turn.now, seconds=self._settings.sweep_seconds / 2)

    async def charges(self, turn: Turn, bodies: Sequence[bytes]) -> Sequence[ChargesPage]:
        """Answer what is charged, a page a question. Raises PoisonError."""
        return [await _page(turn, body) for body in bodies]

    async def _load(
        self,
        turn: Turn,
        keys: Iterable[QueueKey],
        jobs: Iterable[JobId],
        *,
        makes_room: bool,
        wished: Mapping[QueueKey, int] = MappingProxyType({}),
    ) -> View:
        return await store.load(
            turn.connection,
            sorted(set(keys)),
            sorted(set(jobs)),
            now=turn.now,
            scan=self._settings.scan_jobs,
            makes_room=makes_room,
            wished=wished,
        )

    async def _close(self, turn: Turn, before: View, view: View) -> None:
        keys = {job.queue for job in view.jobs.values()}
        view = lapse(view, now=turn.now)
        view = self._say(turn, view, admit(view, keys, self._policy, now=turn.now), None)
        await store.save(turn.connection, before, view)
        plans = [job for job in view.jobs.values() if job.preemption is not None and job.preemption.since == turn.now]
        turn.after_commit(lambda: self._numbers.planned(plans))

    def _say(self, turn: Turn, view: View, facts: Iterable[Said], cause: Envelope | None) -> View:
        for fact in tuple(facts):
            view = evolve(view, fact, version=0, now=turn.now)
            job = view.jobs[fact.job]
            turn.emit(fact, scope=job.queue.tenant, key=job.id, version=job.version, cause=cause)
        return view


async def _page(turn: Turn, body: bytes) -> ChargesPage:
    try:
        query = PageQuery.model_validate_json(body)
        job, _, attempt = query.after.rpartition("/") if query.after else ("", "/", "0")
        after = (job, int(attempt))
    except ValueError as error:
        raise PoisonError("not a question for charges") from error
    items = await store.open_charges(turn.connection, after, query.limit)
    more = len(items) == query.limit
    return ChargesPage(items=tuple(items), following=f"{items[-1].job}/{items[-1].attempt}" if more else None)


def _queue_of(envelope: Envelope) -> QueueKey | None:
    match envelope.data:
        case RequestSubmitted() as fact:
            return QueueKey(fact.tenant, fact.queue)
        case RequestApplied(kind="Queue") as fact:
            return QueueKey(TenantId(fact.tenant or ""), fact.name)
        case _:
            return None


def wished(batch: Iterable[Envelope]) -> dict[QueueKey, int]:
    """Return the highest priority of the jobs that are wished for, by queue."""
    highest: dict[QueueKey, int] = {}
    for fact in (envelope.data for envelope in batch):
        if isinstance(fact, RequestSubmitted):
            key = QueueKey(fact.tenant, fact.queue)
            highest[key] = max(highest.get(key, fact.priority), fact.priority)
    return highest


class Numbers:
    """Admission in numbers, by queue (tenant/name) and class."""

    def __init__(self, metrics: Metrics) -> None:
        by = ("queue", "gpu_class")
        self._jobs = metrics.table("triplane_admission_pending_jobs", "Jobs that wait for quota.", by)
        self._waiting = metrics.table("triplane_admission_pending_devices", "Devices that those jobs ask for.", by)
        self._charged = metrics.table("triplane_admission_charged_devices", "Devices charged to the quota.", by)
        self._quotas = metrics.table("triplane_admission_quota_devices", "Devices that the quota allows.", by)
        self._victims = metrics.summary("triplane_admission_preempted_jobs", "Jobs ended for another, a plan.")

    def planned(self, jobs: Iterable[Job]) -> None:
        """Count whom the plans of these jobs ended."""
        for job in jobs:
            if job.preemption is not None:
                self._victims.observe(job.preemption.victims)

    async def measure(self, connection: Connection) -> None:
        """Count."""
        numbers = await store.numbers(connection)
        self._jobs.fill(numbers.jobs)
        self._waiting.fill(numbers.waiting)
        self._charged.fill(numbers.charged)
        self._quotas.fill(numbers.quotas)
