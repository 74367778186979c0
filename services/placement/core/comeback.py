"""A gang that lost a node comes back: what it had is held for it, for as long as its document says.

A hold frees nothing and takes nothing from anybody: the cycle only gives others nothing of it that are behind the job
in placement's order. It ends with the job's next grant or its end, and after its time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from schemas.base import Event
from schemas.ids import ClusterId, JobId, NodeId
from schemas.reasons import NODE_GONE
from schemas.workload import JobCancelled, JobEvicted, JobFinished, JobRejected
from services.placement.core.grant import Grant


@dataclass(frozen=True, slots=True)
class Room:
    """What a grant had on one node."""

    node: NodeId
    devices: int
    cpu_milli: int = 0
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class Comeback:
    """A job that is to come back, with its place in the order, and what is held for it until then.

    A node that has another owner than ``cluster`` by now holds nothing: a gang has one destination.
    """

    job: JobId
    name: str
    priority: int
    queued_at: datetime
    cluster: ClusterId
    gpu_class: str
    until: datetime
    rooms: tuple[Room, ...]


def comes_back(before: Grant, after: Grant) -> bool:
    """Whether a grant ends here since a node of it is gone: then what it had is held, where its job wishes that."""
    return before.revoked_at is None and after.reason is not None and after.reason.code in NODE_GONE


def given_up(facts: Iterable[Event]) -> set[JobId]:
    """Return the jobs that do not come back, by what admission says: they ended, or an attempt ended otherwise."""
    ends = [fact for fact in facts if isinstance(fact, JobCancelled | JobFinished | JobRejected | JobEvicted)]
    return {end.job for end in ends if not (isinstance(end, JobEvicted) and end.reason.code in NODE_GONE)}
