"""The attempts that placement's ledger knows, in memory; see ``ledger``."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from schemas.base import fact_type
from schemas.ids import JobId, TenantId, fact_id, run_name
from schemas.reasons import Reason
from schemas.workload import GrantRefused, JobAdmitted
from services.placement.core.decide import Pending, Refusal
from services.placement.store.attempts import Ended, Refused

Attempt = tuple[JobId, int]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """A row of ``attempts``. ``pending`` None: it was over before its admission was heard (R9)."""

    state: str
    tenant: TenantId
    pending: Pending | None = None
    cause: UUID | None = None
    version: int = 0
    grants: int = 0
    refusals: int = 0
    refusal: Reason | None = None
    refused_at: datetime | None = None


@dataclass(slots=True)
class AttemptTables:
    """The rows by job and attempt."""

    rows: dict[Attempt, AttemptRow] = field(default_factory=dict)

    def copy(self) -> "AttemptTables":
        """Return what a transaction may change without being seen."""
        return type(self)(dict(self.rows))

    def admit(self, admitted: Sequence[tuple[JobAdmitted, int, UUID]]) -> list[Ended]:
        """Let attempts wait, of one attempt by the newest. Return those that are given nothing (R9, R12)."""
        newest = {(each[0].job, each[0].attempt): each for each in sorted(admitted, key=_version)}
        nothing = [key for key, (fact, version, cause) in newest.items() if not self._admit(fact, version, cause)]
        return [self._once_more(key) for key in nothing]

    def end(self, over: Sequence[tuple[JobId, int, TenantId, UUID]]) -> list[Ended]:
        """Put an end to these attempts, known or not (R9)."""
        return [self._end((job, attempt), tenant, cause) for job, attempt, tenant, cause in over]

    def end_earlier(self, jobs: Sequence[JobId]) -> list[Ended]:
        """End all attempts of these jobs but the last."""
        ended = []
        for job in sorted(set(jobs)):
            keys = sorted(key for key in self.rows if key[0] == job)
            begun = [key for key in keys if self.rows[key].cause is not None]  # others only a node told of
            for key in keys:
                if begun and key < begun[-1] and self.rows[key].state != "Over":
                    self.rows[key] = replace(self.rows[key], state="Over")
                    ended.append(self._once_more(key))
        return ended

    def pending(self) -> list[Pending]:
        """Return the attempts that wait."""
        return [row.pending for row in self.rows.values() if row.state == "Pending" and row.pending is not None]

    def refuse(self, refusals: Sequence[Refusal], now: datetime, *, repeat_seconds: float) -> list[Refused]:
        """Note why attempts wait, and return what is to be said: codes that changed at once, numbers every so often."""
        said = []
        for told in sorted(refusals, key=lambda each: (each.pending.job, each.pending.attempt)):
            key = (told.pending.job, told.pending.attempt)
            row = self.rows[key]
            if row.state == "Pending" and _is_news(row, told, now - timedelta(seconds=repeat_seconds)):
                state = "Refused" if told.final else "Pending"
                row = replace(row, state=state, refusal=told.reason, refused_at=now, refusals=row.refusals + 1)
                self.rows[key] = row
                said.append(Refused(told, row.refusals, row.cause))
        return said

    def granted(self, key: Attempt) -> None:
        """Note that the attempt was given devices."""
        row = self.rows[key]
        self.rows[key] = replace(row, state="Granted", grants=row.grants + 1, refusal=None)

    def granted_before(self, key: Attempt, tenant: TenantId, number: int, now: datetime) -> None:
        """Note that the attempt was given devices by a later ledger; one that is not known may still be admitted."""
        row = self.rows.get(key) or AttemptRow("Refused", tenant, refused_at=now)
        state = "Granted" if row.state == "Pending" else row.state
        self.rows[key] = replace(row, state=state, grants=max(row.grants, number))

    def unanswered(self, before: datetime) -> list[UUID]:
        """Return the final refusals that nobody answered since then."""
        return [
            fact_id(fact_type(GrantRefused), run_name(*key), row.refusals)
            for key, row in self.rows.items()
            if row.state == "Refused" and row.refused_at is not None and row.refused_at < before
        ]

    def _admit(self, fact: JobAdmitted, version: int, cause: UUID) -> bool:
        """Let an attempt wait. Return False when it is to hear that it is given nothing."""
        key = (fact.job, fact.attempt)
        known = self.rows.get(key)
        if known is None:
            self.rows[key] = AttemptRow("Pending", fact.tenant, _pending(fact), cause, version)
            return True
        if known.state == "Refused" and known.version < version:
            known = replace(known, cause=cause, version=version)
            if not known.grants:
                pending = replace(known.pending or _pending(fact), gpu_class=fact.gpu_class)
                known = replace(known, state="Pending", refusal=None, pending=pending)
            self.rows[key] = known
            return not known.grants
        return known.state != "Over" or known.grants > 0

    def _end(self, key: Attempt, tenant: TenantId, cause: UUID) -> Ended:
        known = self.rows.get(key) or AttemptRow("Over", tenant)
        self.rows[key] = replace(known, state="Over", cause=cause)
        return self._once_more(key)

    def _once_more(self, key: Attempt) -> Ended:
        row = self.rows[key]
        row = replace(row, refusals=row.refusals + 1)
        self.rows[key] = row
        return Ended(*key, row.tenant, row.grants > 0, row.refusals)


def _version(admitted: tuple[JobAdmitted, int, UUID]) -> int:
    return admitted[1]


def _pending(fact: JobAdmitted) -> Pending:
    return Pending(
        job=fact.job,
        attempt=fact.attempt,
        tenant=fact.tenant,
        name=fact.name,
        queue=fact.queue,
        priority=fact.priority,
        gpu_class=fact.gpu_class,
        demand=fact.demand,
        work=fact.work,
        queued_at=fact.queued_at,
    )


def _is_news(row: AttemptRow, told: Refusal, before: datetime) -> bool:
    if told.final or row.refusal is None or row.refusal.code is not told.reason.code:
        return True
    return row.refusal != told.reason and row.refused_at is not None and row.refused_at < before
