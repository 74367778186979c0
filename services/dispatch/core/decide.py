"""What dispatch says of a run after what it heard: each state once, the result once, and never without a reason."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, TypedDict

from schemas.ids import GrantId, JobId, RunName, TenantId
from schemas.lifecycle import RunState
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import (
    ExitRecord,
    RunAccepted,
    RunFailed,
    RunLaunched,
    RunLost,
    RunStarted,
    RunStopped,
    RunSucceeded,
)
from services.dispatch.core.evolve import Said
from services.dispatch.core.view import Part, PartState, Run

BEGUN: Final = frozenset({PartState.ACCEPTED, PartState.STARTED, PartState.ENDED, PartState.SETTLED})
RUNNING: Final = frozenset({PartState.STARTED, PartState.ENDED})

SIGNALLED: Final = 128  # what a shell adds to the number of the signal


def decide(run: Run, *, now: datetime, vanished_seconds: float) -> Iterator[Said]:
    """Yield what is to be said of a run as it now is. Saying it and asking again yields nothing."""
    if run.ended:
        return
    if run.state is RunState.LAUNCHING and run.revoked is None:
        yield RunLaunched(**_who(run), cluster=run.cluster)
    result = _result(run, now, vanished_seconds)
    accepted = all(part.state in BEGUN for part in run.parts)
    if run.state in {RunState.LAUNCHING, RunState.LAUNCHED} and accepted and run.revoked is None:
        yield RunAccepted(**_who(run))
    started = all(_has_started(part) for part in run.parts)
    if run.state is not RunState.STARTED and started and run.revoked is None:
        yield RunStarted(**_who(run), started_at=_started_at(run, now))
    if result is not None:
        yield result


class _Who(TypedDict):
    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId


def _who(run: Run) -> _Who:
    return _Who(run=run.name, grant=run.grant, epoch=run.epoch, job=run.job, attempt=run.attempt, tenant=run.tenant)


def _has_started(part: Part) -> bool:
    """A part that ended well may be Settled before another has begun."""
    if part.exit is not None and part.exit.refused is not None:
        return False
    return part.state in RUNNING or (part.state is PartState.SETTLED and part.exit is not None and part.exit.succeeded)


def _started_at(run: Run, now: datetime) -> datetime:
    times = [part.exit.started_at for part in run.parts if part.exit and part.exit.started_at]
    return max(times) if len(times) == len(run.parts) else now


def _result(run: Run, now: datetime, vanished_seconds: float) -> Said | None:
    if run.revoked is not None and run.revoked.code is not Code.RUN_ENDED:
        return _after_revocation(run, now)
    for part in run.parts:
        failure = _failure(part)
        if failure is not None:
            code, why = failure
            return RunFailed(**_who(run), exit_code=code, reason=why, ended_at=_ended_at(part, now))
    if all(part.exit is not None and part.exit.succeeded for part in run.parts):
        return RunSucceeded(**_who(run), ended_at=max(_ended_at(part, now) for part in run.parts))
    return _lost(run, vanished_seconds)


def _after_revocation(run: Run, now: datetime) -> Said | None:
    """A run that was taken back ends as Stopped once every part is over; with a lost node its result stays unknown."""
    assert run.revoked is not None
    if run.revoked.code is Code.NODE_LOST:
        return RunLost(**_who(run), reason=run.revoked)
    begun = [part for part in run.parts if part.state is not PartState.PENDING]
    if all(part.over for part in begun):
        return RunStopped(**_who(run), reason=run.revoked, ended_at=now)
    return None


def _lost(run: Run, vanished_seconds: float) -> Said | None:
    unknown = [part for part in run.parts if part.exit is None and part.state in {PartState.ENDED, PartState.SETTLED}]
    if unknown:
        text = f"node {unknown[0].node_name} has no record of how the run ended"
        return RunLost(**_who(run), reason=reason(Layer.DISPATCH, Code.RESULT_UNKNOWN, text))
    limit = timedelta(seconds=vanished_seconds)
    gone = [part for part in run.parts if part.missing_since is not None and part.missing >= limit]
    if gone:
        text = f"node {gone[0].node_name} knows nothing of the run"
        return RunLost(**_who(run), reason=reason(Layer.DISPATCH, Code.VANISHED, text))
    return None


def _ended_at(part: Part, now: datetime) -> datetime:
    return part.exit.ended_at if part.exit else now


def _failure(part: Part) -> tuple[int | None, Reason] | None:
    """Return (exit code, why) when this part makes the run a failure."""
    record = part.exit
    if record is None or record.succeeded:
        return None
    if record.refused is not None:
        return None, record.refused
    return _exit_reason(part, record)


def _exit_reason(part: Part, record: ExitRecord) -> tuple[int | None, Reason]:
    where = f"on node {part.node_name}"
    if record.timed_out:
        return None, reason(Layer.NODE, Code.DEADLINE_EXCEEDED, f"over its time limit {where}")
    if record.cancelled_by is not None:
        text = f"cancelled {where} by {record.cancelled_by}"
        return None, reason(Layer.NODE, Code.BACKEND_CANCELLED, text)
    if record.stopped:
        return None, reason(Layer.NODE, Code.STOPPED, f"stopped {where}")
    for rank in record.ranks:
        if rank.signal is not None:
            text = f"rank {rank.rank} was ended by signal {rank.signal} {where}"
            why = reason(Layer.NODE, Code.SIGNALLED, text, rank=rank.rank, signal=rank.signal)
            return SIGNALLED + rank.signal, why
        if rank.exit_code:
            text = f"rank {rank.rank} ended with code {rank.exit_code} {where}"
            why = reason(Layer.NODE, Code.NON_ZERO_EXIT_CODE, text, rank=rank.rank, exit_code=rank.exit_code)
            return rank.exit_code, why
    return None, reason(Layer.NODE, Code.RESULT_UNKNOWN, f"no rank left a result {where}")
