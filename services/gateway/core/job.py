"""The read model of a job: facts of three writers, folded in whatever order and number they come."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from schemas import workload as w
from schemas.base import Envelope, Event, Value
from schemas.ids import ClusterId, GrantId, JobId, NodeId, TenantId
from schemas.lifecycle import JobLife, JobState, fold
from schemas.reasons import Reason

MAX_HISTORY: Final = 100
_SHOWN_NODES: Final = 4


class Said(Value):
    """What one writer said last about an attempt; the greater (attempt, version) wins."""

    attempt: int
    version: int
    at: datetime
    reason: Reason | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Newer is greater."""
        return self.attempt, self.version


class Charge(Value):
    """Quota that an attempt holds."""

    attempt: int
    gpu_class: str
    devices: int


class Place(Value):
    """A part of the attempt's grant: a node and the ranks that run there."""

    node: NodeId
    node_name: str
    ranks: tuple[int, ...]


class Placement(Value):
    """The newest grant of an attempt."""

    attempt: int
    epoch: int
    grant: GrantId
    cluster: ClusterId
    gpu_class: str
    world_size: int
    places: tuple[Place, ...]
    issued_at: datetime | None = None


class JobView(Value):
    """A job as far as facts tell. ``waits``: admission's word; ``refused``: placement's; ``run``: dispatch's.

    ``placement``: of the newest granted attempt; ``earlier``: of those before it, the newest first.
    """

    job: JobId
    tenant: TenantId
    state: JobState = JobState.QUEUED
    attempt: int = 1
    waits: Said | None = None
    refused: Said | None = None
    run: Said | None = None
    end: Said | None = None
    charge: Charge | None = None
    placement: Placement | None = None
    earlier: tuple[Placement, ...] = ()
    started: Said | None = None
    exit_code: int | None = None

    @property
    def life(self) -> JobLife:
        """State and attempt, as the fold has them."""
        return JobLife(self.state, self.attempt)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where its granted attempts were, the newest first."""
        return (self.placement, *self.earlier) if self.placement else ()

    @property
    def said(self) -> Said | None:
        """The word that explains the present state; None: nobody has said one for it."""
        if self.life.ended:
            return self.end
        word = {JobState.QUEUED: self.waits, JobState.ADMITTED: self.refused}.get(self.state)
        return word if word is not None and word.attempt == self.attempt else None


KEPT_ATTEMPTS: Final = 8  # of which it is known where they ran

# which word of the view a fact is, and of which attempt it speaks: an eviction explains the attempt that follows
_WORD: Final[Mapping[type[Event], tuple[str, int]]] = {
    w.JobHeld: ("waits", 0),
    w.JobRequeued: ("waits", 0),
    w.JobEvicted: ("waits", 1),
    w.JobRejected: ("end", 0),
    w.JobCancelled: ("end", 0),
    w.JobFinished: ("end", 0),
    w.GrantRefused: ("refused", 0),
    w.RunStarted: ("started", 0),
    w.RunFailed: ("run", 0),
    w.RunStopped: ("run", 0),
    w.RunLost: ("run", 0),
}


def job_of(envelope: Envelope) -> JobId | None:
    """Return the job that a fact of admission, placement or dispatch is about."""
    is_about_a_job = envelope.type.startswith(("workload.job.", "workload.grant.", "workload.run."))
    job: JobId | None = getattr(envelope.data, "job", None) if is_about_a_job else None
    return job


def evolve(view: JobView, envelope: Envelope) -> JobView:
    """Return the view after a fact. Any order and any doubles of the same facts give the same view."""
    life = fold(view.life, envelope.data)
    changes = {"state": life.state, "attempt": life.attempt, **_word(view, envelope), **_held(view, envelope.data)}
    return view.model_copy(update=changes)


def _word(view: JobView, envelope: Envelope) -> dict[str, Said]:
    name, ahead = _WORD.get(type(envelope.data), ("", 0))
    if not name:
        return {}
    fact: Any = envelope.data
    at = fact.started_at if isinstance(fact, w.RunStarted) else envelope.time
    said = Said(attempt=fact.attempt + ahead, version=envelope.version, at=at, reason=reason_of(fact))
    before: Said | None = getattr(view, name)
    return {name: said if before is None or said.order > before.order else before}


def _held(view: JobView, fact: Event) -> dict[str, Charge | Placement | tuple[Placement, ...] | int | None]:
    match fact:
        case w.JobQuotaReserved():
            return {"charge": _charge(view.charge, fact)}
        case w.GrantIssued():
            newest, *earlier = _placements(view, fact)
            return {"placement": newest, "earlier": tuple(earlier)}
        case w.JobFinished():
            return {"exit_code": fact.exit_code}
        case _:
            return {}


def _charge(before: Charge | None, fact: w.JobQuotaReserved) -> Charge:
    if before is not None and before.attempt >= fact.attempt:
        return before
    return Charge(attempt=fact.attempt, gpu_class=fact.gpu_class, devices=fact.devices)


def _placements(view: JobView, fact: w.GrantIssued) -> list[Placement]:
    """Return the newest grant of each of the newest attempts."""
    every = sorted((*view.placements, _placement(fact)), key=lambda each: (each.attempt, each.epoch))
    return sorted({each.attempt: each for each in every}.values(), key=lambda each: -each.attempt)[:KEPT_ATTEMPTS]


def _placement(fact: w.GrantIssued) -> Placement:
    return Placement(
        attempt=fact.attempt,
        epoch=fact.epoch,
        grant=fact.grant,
        cluster=fact.cluster,
        gpu_class=fact.gpu_class,
        world_size=fact.world_size,
        places=tuple(
            Place(node=part.node, node_name=part.node_name, ranks=tuple(replica.rank for replica in part.replicas))
            for part in fact.parts
        ),
        issued_at=fact.issued_at,
    )


def reason_of(fact: Event) -> Reason | None:
    """Return the reason that a fact gives."""
    found = getattr(fact, "reason", None)
    return found if isinstance(found, Reason) else None


class HistoryEntry(Value):
    """One thing that happened to a job; ``note`` says what a fact without a reason is about."""

    at: datetime
    attempt: int
    type: str
    reason: Reason | None = None
    note: str = ""


def history_of(envelope: Envelope) -> HistoryEntry:
    """Return the line of the job's history that a fact about the job makes."""
    attempt: int = getattr(envelope.data, "attempt", 1)
    return HistoryEntry(
        at=envelope.time,
        attempt=attempt,
        type=envelope.type,
        reason=reason_of(envelope.data),
        note=_note(envelope.data),
    )


def _note(fact: Event) -> str:
    match fact:
        case w.JobQuotaReserved():
            return f"{fact.devices} {fact.gpu_class}"
        case w.GrantIssued():
            return _names([part.node_name for part in fact.parts])
        case w.JobCancelled():
            return f"by {fact.cancelled_by}" + (f": {fact.message}" if fact.message else "")
        case w.JobFinished(reason=None):
            return fact.outcome
        case _:
            return ""


def _names(nodes: Sequence[str]) -> str:
    """Return the first names and how many more there are."""
    more = f" and {len(nodes) - _SHOWN_NODES} more" if len(nodes) > _SHOWN_NODES else ""
    return f"on {', '.join(nodes[:_SHOWN_NODES])}{more}"
