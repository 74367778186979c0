"""A job's life as one line of facts: what each answered, how long that took, and where the time went."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from schemas import workload as w
from schemas.base import Envelope, Event, Value
from schemas.ledger import UsageRated
from schemas.reasons import Reason
from services.gateway.core.job import reason_of

Kinds = tuple[type[Event], ...]
RUN_OVER: Final[Kinds] = (w.RunSucceeded, w.RunFailed, w.RunStopped, w.RunLost)
OVER: Final[Kinds] = (w.JobFinished, w.JobEvicted, w.JobCancelled, w.JobRejected)
PHASES: Final[tuple[tuple[str, Kinds, Kinds], ...]] = (  # of an attempt: its name, what begins it, what ends it
    ("intake", (w.RequestSubmitted,), (w.JobQueued, w.JobRejected)),
    ("quota", (w.JobQueued, w.JobRequeued), (w.JobAdmitted, *OVER)),
    ("devices", (w.JobAdmitted,), (w.GrantIssued, *OVER)),
    ("launch", (w.GrantIssued,), (w.RunAccepted, *OVER)),
    ("start", (w.RunAccepted,), (w.RunStarted, *OVER)),
    ("run", (w.RunStarted,), (*RUN_OVER, *OVER)),
    ("verdict", RUN_OVER, OVER),
    ("release", (w.GrantRevoked,), (w.GrantReleased,)),
)


class Step(Value):
    """One fact. ``seconds``: since what it answers (``after``), or since the fact before it when that is not known."""

    fact: UUID
    at: datetime
    service: str
    type: str
    attempt: int
    after: str | None = None
    seconds: float = 0.0
    reason: Reason | None = None


class Phase(Value):
    """A part of an attempt's life, with the last reason that was given for it. Not over: it lasts until now."""

    name: str
    attempt: int
    began: datetime
    seconds: float
    over: bool
    reason: Reason | None = None


def steps(facts: Sequence[Envelope]) -> list[Step]:
    """Return facts as steps in the order of their times; of one time, in the order given."""
    ordered = sorted(facts, key=lambda fact: fact.time)
    known = {fact.id: fact for fact in ordered}
    return [_step(fact, before, known) for fact, before in zip(ordered, [None, *ordered], strict=False)]


def phases(facts: Sequence[Envelope], now: datetime) -> list[Phase]:
    """Return the parts of every attempt's life, in the order in which they began."""
    attempts: dict[int, list[Envelope]] = {}
    for fact in sorted(facts, key=lambda fact: fact.time):
        attempts.setdefault(_attempt(fact), []).append(fact)
    found = [phase for each in attempts.values() for phase in (*_of_life(each, now), *_of_bill(each, now))]
    return sorted(found, key=lambda phase: (phase.began, phase.attempt))


def _of_life(facts: Sequence[Envelope], now: datetime) -> Iterator[Phase]:
    for name, begins, ends in PHASES:
        first = next((fact for fact in facts if isinstance(fact.data, begins)), None)
        if first is not None:
            later = (fact for fact in facts if isinstance(fact.data, ends) and fact.time >= first.time)
            yield _phase(name, facts, first, next(filter(_is_last_part, later), None), now)


def _of_bill(facts: Sequence[Envelope], now: datetime) -> Iterator[Phase]:
    """A part is billed when it is released: the bill is complete with as many ratings as releases."""
    released = [fact for fact in facts if isinstance(fact.data, w.GrantReleased)]
    rated = [fact for fact in facts if isinstance(fact.data, UsageRated)]
    if released:
        yield _phase("bill", facts, released[-1], rated[-1] if len(rated) >= len(released) else None, now)


def _is_last_part(fact: Envelope) -> bool:
    return not isinstance(fact.data, w.GrantReleased) or fact.data.remaining == 0


def _phase(name: str, facts: Sequence[Envelope], first: Envelope, end: Envelope | None, now: datetime) -> Phase:
    until = end.time if end is not None else now
    between = [fact for fact in facts if first.time <= fact.time <= until]
    reasons = [reason_of(fact.data) for fact in between if fact is end or fact.time < until]
    return Phase(
        name=name,
        attempt=_attempt(first),
        began=first.time,
        seconds=max(0.0, (until - first.time).total_seconds()),
        over=end is not None,
        reason=next((reason for reason in reversed(reasons) if reason is not None), None),
    )


def _step(fact: Envelope, before: Envelope | None, known: Mapping[UUID, Envelope]) -> Step:
    cause = known.get(fact.cause) if fact.cause is not None else None
    since = cause or before or fact
    return Step(
        fact=fact.id,
        at=fact.time,
        service=fact.source,
        type=fact.type,
        attempt=_attempt(fact),
        after=cause.type if cause is not None else None,
        seconds=max(0.0, (fact.time - since.time).total_seconds()),
        reason=reason_of(fact.data),
    )


def _attempt(fact: Envelope) -> int:
    attempt: int = getattr(fact.data, "attempt", 1)
    return attempt
