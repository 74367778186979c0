"""How a storm ends: faults stop, time passes, and every job has its end or waits with a reason that is true."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Protocol

from schemas.base import Envelope
from schemas.ids import DeviceId, GrantId
from schemas.lifecycle import JobState
from schemas.reasons import Code
from schemas.workload import GrantReleased
from services.admission.core import Job, View
from services.billing import core as billing
from services.placement.core.drift import differences
from tests.simulation.dispatch import Runs
from tests.simulation.invariants import Judge
from tests.simulation.ledger import Ledger
from tests.simulation.records import Records, snapshot
from tests.simulation.stage import Stage
from tests.simulation.store import BreachError

NEVER: Final = frozenset({Code.EXCEEDS_QUOTA, Code.CLASS_NOT_OFFERED, Code.QUEUE_UNKNOWN, Code.CAN_NEVER_FIT})
"""Reasons that stay true for ever in a world where nobody changes quotas or buys nodes."""


class EndedStage(Stage, Protocol):
    """A stage with all its memories."""

    judge: Judge

    @property
    def runs(self) -> Runs:
        """What dispatch has committed."""

    def records(self) -> Records:
        """What admission and dispatch answer when they are asked what they remember."""


def unfinished(stage: EndedStage) -> list[str]:
    """Return what is still under way, or stuck."""
    return [
        *_open_jobs(stage.admission_view),
        *_held(stage.ledger, stage.admission_view),
        *(
            f"dispatch has not settled {run.name}: {run.state.value}"
            for run in stage.runs.view.runs.values()
            if not run.settled
        ),
        *_left_behind(stage),
        *stage.judge.moves.unfinished(),
        *(f"dispatch keeps what it heard of {grant}" for grant in stage.runs.early if grant in stage.ledger.grants),
        *(f"the gateway waits for {wish.name}" for wish in stage.gateway.store.state.jobs.values() if not wish.heard),
        *(f"{store.name} has something to say" for store in stage.stores if store.unsent),
        *(["messages are on their way"] if stage.ground.broker.holds("workload") else []),
    ]


def differing(stage: EndedStage) -> list[str]:
    """Return how records differ, and what is told of it; nothing at rest, but of nodes that never come back."""
    store = stage.replicas[0].store
    turn = store.turn()
    gone = {node for site in stage.sites for node in site.gone}
    silent = stage.replicas[0].settings.suspect_after_seconds
    found = differences(snapshot(turn, stage.records(), stage.leases, silent_seconds=silent))
    return [
        f"{each.kind.value} of {each.subject}" for each in sorted({*found, *turn.state.drifts}) if each.node not in gone
    ]


def check_end(stage: EndedStage) -> None:
    """Check what holds once nothing is under way. Raises BreachError."""
    leased = {lease.device: lease.grant for lease in stage.leases.held() if lease.epoch}
    live = {str(device): str(grant) for device, (grant, _) in stage.ledger.lines.items()}
    if leased != live:
        raise BreachError(f"I10: leases {leased} and live lines {live} differ")
    check_bill([envelope for store in stage.stores for envelope in store.said])


def check_bill(facts: list[Envelope]) -> None:
    """Let billing hear everything: intervals of a device never overlap, and add up to granted time (I6)."""
    view = billing.View()
    for envelope in sorted(facts, key=lambda each: each.id):  # in no order at all, and twice
        view = billing.evolve(billing.evolve(view, envelope), envelope)
    taken: dict[DeviceId, list[tuple[datetime, datetime, GrantId]]] = {}
    for part in view.parts.values():
        if not part.whole:
            continue
        for spans in billing.accounts(part).values():
            for device, (start, end) in spans.items():
                taken.setdefault(device, []).append((start, end, part.grant))
    _check_spans(taken)
    granted = sum(
        ((f.data.released_at - f.data.issued_at).total_seconds() * len(f.data.devices))
        for f in facts
        if isinstance(f.data, GrantReleased)
    )
    billed = sum((end - start).total_seconds() for spans in taken.values() for start, end, _ in spans)
    if abs(granted - billed) > 1e-3:
        raise BreachError(f"I6: {granted} s were granted and {billed} s are billed")


def _check_spans(taken: dict[DeviceId, list[tuple[datetime, datetime, GrantId]]]) -> None:
    for device, spans in taken.items():
        ends = datetime.min.replace(tzinfo=spans[0][0].tzinfo)
        for start, end, grant in sorted(spans):
            if start < ends or end < start:
                raise BreachError(f"I6: {device} is billed twice from {start} to {end} for {grant}")
            ends = end


def _left_behind(stage: Stage) -> Iterator[str]:
    """Yield what runs since before a restore, and nobody has taken up or ended."""
    for site in stage.sites:
        for node, run in site.running():
            if run.instance in stage.forgotten and node.id not in site.gone:
                yield f"{run.order.run} still runs on {node.name}"
    if stage.ledger.stops or stage.ledger.recovery.takes_up:
        yield f"grants are stopped: {stage.ledger.stops}, {sorted(stage.ledger.recovery.forgotten)}"
    gone = {node for site in stage.sites for node in site.gone}
    for grant, where, epoch in stage.ledger.recovery.forgotten:
        if where not in gone:
            yield f"{grant} of epoch {epoch} keeps its devices on {where} as a stranger"


def _open_jobs(view: View) -> Iterator[str]:
    for job in view.jobs.values():
        if not job.ended and not _waits_truly(job, view):
            why = job.reason.code.value if job.reason else "no reason"
            yield f"job {job.name} is {job.state.value} as attempt {job.attempt} ({why})"
    for (job_id, attempt), charge in view.charges.items():
        if not charge.over:
            yield f"{view.jobs[job_id].name} attempt {attempt} is charged {charge.devices} on {charge.account.value}"


def _waits_truly(job: Job, view: View) -> bool:
    """Whether what the job waits for is really missing, now that all quota is free."""
    if job.state is not JobState.QUEUED or job.reason is None:
        return False
    if job.reason.code in NEVER:
        return True
    queue = view.queues.get(job.queue)
    return job.reason.code is Code.WAITING_FOR_QUOTA and queue is not None and queue.strict


def _held(ledger: Ledger, view: View) -> Iterator[str]:
    yield from (f"room is held for {job} until {row.until}" for job, row in ledger.comebacks.rows.items())
    for part, grant in ledger.live_parts():
        yield f"{grant.name} attempt {grant.attempt} holds {len(part.devices)} on {part.node_name}: {part.state.value}"
    for (job_id, attempt), row in ledger.attempts.rows.items():
        job = view.jobs.get(job_id)
        over = job is not None and (job.ended or attempt < job.attempt)
        if row.state != "Over" and over and job is not None and row.cause is not None:
            yield f"placement has not heard the end of {job.name} attempt {attempt}: {row.state}"
