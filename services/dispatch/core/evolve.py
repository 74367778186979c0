"""What a fact or a destination's answer changes in dispatch's memory."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from schemas.base import Event, fact_type
from schemas.ids import fact_id, run_name
from schemas.lifecycle import RunState
from schemas.reasons import Code
from schemas.runtime import ObservationNoticed, RunEvent
from schemas.workload import (
    ExitRecord,
    GrantConfirmed,
    GrantIssued,
    GrantReleased,
    GrantRevoked,
    RunAccepted,
    RunFailed,
    RunLaunched,
    RunLost,
    RunStarted,
    RunStopped,
    RunSucceeded,
)
from services.dispatch.core.view import Part, PartState, Run, Sighting, SightingKind, View

Said = RunLaunched | RunAccepted | RunStarted | RunSucceeded | RunFailed | RunStopped | RunLost
STATE_OF: Final[dict[type[Event], RunState]] = {
    RunLaunched: RunState.LAUNCHED,
    RunAccepted: RunState.ACCEPTED,
    RunStarted: RunState.STARTED,
    RunSucceeded: RunState.SUCCEEDED,
    RunFailed: RunState.FAILED,
    RunStopped: RunState.STOPPED,
    RunLost: RunState.LOST,
}
_PROGRESS: Final = {state: rank for rank, state in enumerate(PartState)}
LATE: Final = frozenset({Code.ALREADY_STARTED, Code.GRANT_OVER})
"""Refusals of a second or late start: evidence, never the run's result."""
SEEN: Final = {
    SightingKind.ACCEPTED: PartState.ACCEPTED,
    SightingKind.STARTED: PartState.STARTED,
    SightingKind.ENDED: PartState.ENDED,
}
TO_ASK: Final = frozenset({PartState.PENDING, PartState.UNKNOWN})  # of which something is due until it is answered
STOP_AGAIN_SECONDS: Final = 10.0  # placement asks for the proof meanwhile; this only repeats the order
BACKOFF_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)


def evolve(view: View, fact: Event | Sighting, *, now: datetime) -> View:
    """Return the view after a fact heard or said, or an answer of a destination."""
    match fact:
        case GrantIssued():
            return view if fact.grant in view.runs else _with(view, _run(fact))
        case Sighting() | ObservationNoticed() | GrantConfirmed() | GrantRevoked() | GrantReleased():
            run = view.runs.get(fact.grant)
            return view if run is None else _with(view, _heard(run, fact, now))
        case RunLaunched() | RunAccepted() | RunStarted() | RunSucceeded() | RunFailed() | RunStopped() | RunLost():
            return _with(view, _said(view.runs[fact.grant], fact))
        case _:
            return view


def is_news(run: Run, sighting: Sighting, *, now: datetime) -> bool:
    """Say whether an answer changes anything that is remembered of a run; most answers do not."""
    return _heard(run, sighting, now) is not run


def _with(view: View, run: Run) -> View:
    return View({**view.runs, run.grant: run})


def _run(fact: GrantIssued) -> Run:
    return Run(
        name=run_name(fact.job, fact.attempt),
        grant=fact.grant,
        epoch=fact.epoch,
        job=fact.job,
        attempt=fact.attempt,
        tenant=fact.tenant,
        job_name=fact.name,
        queue=fact.queue,
        cluster=fact.cluster,
        world_size=fact.world_size,
        work=fact.work,
        start_deadline=fact.start_deadline,
        parts=tuple(Part(part.node, part.node_name, part.replicas) for part in fact.parts),
    )


def _said(run: Run, fact: Said) -> Run:
    version = run.version + 1
    identity = fact_id(fact_type(type(fact)), run.name, version)
    return replace(run, state=STATE_OF[type(fact)], version=version, fact=identity)


def _heard(
    run: Run, fact: Sighting | ObservationNoticed | GrantConfirmed | GrantRevoked | GrantReleased, now: datetime
) -> Run:
    if isinstance(fact, GrantRevoked):
        return replace(run, revoked=run.revoked or fact.reason, answered=True, due_at=None, tries=0)
    part = run.part(fact.node)
    if part is None:
        return run
    match fact:
        case GrantConfirmed():
            return run.with_part(replace(part, claimed=fact.instance))
        case GrantReleased():
            settled = replace(part, state=PartState.SETTLED, exit=fact.exit or part.exit)
            told = fact.remaining == 0 or not fact.alone  # a part may go before the run has any result
            return replace(run.with_part(settled), answered=run.answered or told)
        case ObservationNoticed():
            ended = fact.event is RunEvent.ENDED
            return run.with_part(_seen(part, PartState.ENDED if ended else PartState.STARTED, fact.instance, fact.exit))
        case Sighting():
            return _sighted(run, part, fact, now)


def _seen(part: Part, state: PartState, instance: str | None, record: ExitRecord | None) -> Part:
    """Take in what a node says of an instance; what is no news, or not of the claimed instance, changes nothing."""
    if part.missing_since is not None:
        part = replace(part, missing_since=None, missing_again=None)
    if _is_late(record):
        return part
    if _is_stranger(part, instance) or _PROGRESS[state] <= _PROGRESS[part.state]:
        return part
    return replace(part, state=state, exit=record or part.exit)


def _sighted(run: Run, part: Part, fact: Sighting, now: datetime) -> Run:
    match fact.kind:
        case SightingKind.ENDED if _is_late(fact.exit) or _is_stranger(part, fact.instance):
            return _absent(run, _accepted(part), now)
        case SightingKind.ACCEPTED | SightingKind.STARTED | SightingKind.ENDED:
            return run.with_part(_seen(part, SEEN[fact.kind], fact.instance, fact.exit))
        case SightingKind.REFUSED:
            gone = replace(part, state=PartState.REFUSED, exit=_refusal(fact, now)) if not part.over else part
            return run.with_part(gone)
        case SightingKind.UNREACHABLE:
            return _unanswered(run, part, now)
        case SightingKind.ABSENT:
            return _absent(run, part, now)
        case SightingKind.STOPPING:
            return replace(run, due_at=now + timedelta(seconds=STOP_AGAIN_SECONDS))


def _is_late(record: ExitRecord | None) -> bool:
    return record is not None and record.refused is not None and record.refused.code in LATE


def _is_stranger(part: Part, instance: str | None) -> bool:
    return part.claimed is not None and instance is not None and instance != part.claimed


def _accepted(part: Part) -> Part:
    """All that the node has is a later start that came to nothing: it took the launch, the claimed instance is gone."""
    return replace(part, state=PartState.ACCEPTED) if part.state is PartState.UNKNOWN else part


def _absent(run: Run, part: Part, now: datetime) -> Run:
    """A ready node knows of no such run: launch what may never have arrived; what was there begins to be missing."""
    if part.state is PartState.UNKNOWN:
        return run.with_part(replace(part, state=PartState.PENDING))
    if part.over or part.state is PartState.PENDING:
        return run
    return run.with_part(replace(part, missing_since=part.missing_since or now, missing_again=now))


def _unanswered(run: Run, part: Part, now: datetime) -> Run:
    """What was to be done is to be tried again; who was only looked at is looked at again anyhow."""
    if run.revoked is None and part.state not in TO_ASK:
        return run
    unknown = replace(part, state=PartState.UNKNOWN) if part.state is PartState.PENDING else part
    return _later(run.with_part(unknown), now)


def _later(run: Run, now: datetime) -> Run:
    """Wait longer each time, to a full multiple of the wait: runs that wait for one node ask it together."""
    wait = BACKOFF_SECONDS[min(run.tries, len(BACKOFF_SECONDS) - 1)]
    due = math.ceil(now.timestamp() / wait + 1) * wait
    return replace(run, tries=run.tries + 1, due_at=datetime.fromtimestamp(due, UTC))


def _refusal(fact: Sighting, now: datetime) -> ExitRecord:
    return ExitRecord(instance=fact.instance or "", ranks=(), refused=fact.reason, ended_at=now)
