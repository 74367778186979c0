"""What placement's ledger holds for gangs that lost a node, in memory; see ``ledger``."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from schemas.ids import GrantId, JobId
from services.placement.core.comeback import Comeback, Room
from services.placement.core.grant import Grant
from tests.simulation.attempt_tables import AttemptTables


@dataclass(frozen=True, slots=True)
class ComebackRow:
    """A row of ``comebacks``."""

    grant: GrantId
    seconds: int
    until: datetime


@dataclass(slots=True)
class ComebackTables:
    """The rows by job."""

    rows: dict[JobId, ComebackRow] = field(default_factory=dict)

    def copy(self) -> "ComebackTables":
        """Return what a transaction may change without being seen."""
        return type(self)(dict(self.rows))

    def keep(self, grants: Collection[Grant], attempts: AttemptTables) -> None:
        """Hold what these grants had, which lost a node, where the demand of their attempts says for how long."""
        for grant in sorted(grants, key=lambda each: each.epoch):
            row = attempts.rows[grant.job, grant.attempt]
            seconds = row.pending.demand.recovery_seconds if row.pending else None
            if row.state == "Granted" and seconds is not None and grant.revoked_at is not None:
                until = grant.revoked_at + timedelta(seconds=seconds)
                self.rows[grant.job] = ComebackRow(grant.id, seconds, until)

    def end(self, jobs: Collection[JobId]) -> None:
        """Hold nothing more for these jobs."""
        for job in jobs:
            self.rows.pop(job, None)

    def end_late(self, now: datetime) -> None:
        """Delete what is over, and shorten what stands further ahead than it may."""
        for job, row in list(self.rows.items()):
            if row.until <= now:
                del self.rows[job]
            elif row.until > now + timedelta(seconds=row.seconds):
                self.rows[job] = ComebackRow(row.grant, row.seconds, now + timedelta(seconds=row.seconds))

    def standing(self, grants: Mapping[GrantId, Grant], attempts: AttemptTables, now: datetime) -> list[Comeback]:
        """Return what is held now."""
        found = []
        for job, row in sorted(self.rows.items()):
            grant = grants[row.grant]
            pending = attempts.rows[grant.job, grant.attempt].pending
            if row.until <= now or pending is None:
                continue
            each = pending.demand
            rooms = tuple(
                Room(
                    part.node,
                    len(part.devices),
                    len(part.replicas) * each.cpu_milli_per_replica,
                    len(part.replicas) * each.memory_mib_per_replica,
                )
                for part in grant.parts
            )
            order = (pending.name, pending.priority, pending.queued_at)
            found.append(Comeback(job, *order, grant.cluster, grant.gpu_class, row.until, rooms))
        return found
