"""What dispatch remembers: one run an attempt, and what is known of its part on each node."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from schemas.ids import ClusterId, GrantId, JobId, NodeId, RunName, TenantId
from schemas.lifecycle import RUN_ENDS, RunState
from schemas.reasons import Reason
from schemas.workload import ExitRecord, ReplicaSlot, Work

LONGEST_WAIT: Final = timedelta(minutes=1)  # more than any wait that is set


class PartState(StrEnum):
    """Where a part of a run is, on its destination's word and the node's."""

    PENDING = "Pending"
    UNKNOWN = "Unknown"
    ACCEPTED = "Accepted"
    REFUSED = "Refused"
    STARTED = "Started"
    ENDED = "Ended"
    SETTLED = "Settled"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run, on one node.

    ``claimed`` is the instance the ledger let start; ``missing_since`` when a ready node first knew of none,
    ``missing_again`` when it last did: a result vanishes by its answers, not by our waiting.
    """

    node: NodeId
    node_name: str
    replicas: tuple[ReplicaSlot, ...]
    state: PartState = PartState.PENDING
    claimed: str | None = None
    exit: ExitRecord | None = None
    missing_since: datetime | None = None
    missing_again: datetime | None = None

    @property
    def missing(self) -> timedelta:
        """How far apart the first and the last answer are by which a ready node knows of none."""
        if self.missing_since is None or self.missing_again is None:
            return timedelta(0)
        return self.missing_again - self.missing_since

    @property
    def over(self) -> bool:
        """Nothing more comes from this part."""
        return self.state in {PartState.REFUSED, PartState.ENDED, PartState.SETTLED}


@dataclass(frozen=True, slots=True)
class Run:
    """An attempt on a backend. ``revoked`` is why its grant was taken back; ``fact`` what was last said of the run."""

    name: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    job_name: str
    queue: str
    cluster: ClusterId
    world_size: int
    work: Work
    start_deadline: datetime
    parts: tuple[Part, ...]
    state: RunState = RunState.LAUNCHING
    version: int = 0
    revoked: Reason | None = None
    answered: bool = False
    tries: int = 0
    due_at: datetime | None = None
    fact: UUID | None = None

    @property
    def ended(self) -> bool:
        """The run's result was said."""
        return self.state in RUN_ENDS

    @property
    def settled(self) -> bool:
        """Nothing is left to do: the result was said and the ledger took back every part, or heard of it."""
        return self.ended and self.answered and all(part.over for part in self.parts)

    def is_due(self, now: datetime) -> bool:
        """Something is to be asked now; a time that is too far ahead was written before the clock was put back."""
        return self.due_at is None or not now < self.due_at <= now + LONGEST_WAIT

    def part(self, node: NodeId) -> Part | None:
        """Return the part on a node."""
        return next((part for part in self.parts if part.node == node), None)

    def with_part(self, part: Part) -> "Run":
        """Return the run with one part changed; itself when that part is no other."""
        if any(part is each for each in self.parts):
            return self
        return replace(self, parts=tuple(part if each.node == part.node else each for each in self.parts))


class SightingKind(StrEnum):
    """What a destination answered about a part."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    ABSENT = "absent"
    STOPPING = "stopping"
    STARTED = "started"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Sighting:
    """An answer of a destination about one part, to be taken in like a fact."""

    run: RunName
    grant: GrantId
    node: NodeId
    kind: SightingKind
    instance: str | None = None
    exit: ExitRecord | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The runs a turn touches, by grant."""

    runs: Mapping[GrantId, Run] = field(default_factory=dict)
