"""One cycle: every pending gang is given all its devices or none, and a reason with numbers."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from schemas.ids import ClusterId, JobId, TenantId
from schemas.reasons import Reason
from schemas.workload import Demand, GrantedDevice, ReplicaSlot, Work
from services.placement.core.board import Board, Taken, ask_of
from services.placement.core.comeback import Comeback
from services.placement.core.reasons import behind, held_for_others, verdict
from services.placement.core.view import FleetView, NodeRow


@dataclass(frozen=True, slots=True)
class Pending:
    """An admitted attempt that waits for its devices."""

    job: JobId
    attempt: int
    tenant: TenantId
    name: str
    queue: str
    priority: int
    gpu_class: str
    demand: Demand
    work: Work
    queued_at: datetime
    grants: int = 0  # how many the attempt was given before

    @property
    def shape(self) -> tuple[str, Demand]:
        """Gangs of one shape fit or do not fit together."""
        return self.gpu_class, _plain(self.demand)


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """The replicas of a gang on one node."""

    node: NodeRow
    replicas: tuple[ReplicaSlot, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """A whole gang on its devices."""

    pending: Pending
    parts: tuple[PlacedPart, ...]

    @property
    def cluster(self) -> ClusterId:
        """The one destination of the gang."""
        return self.parts[0].node.cluster

    @property
    def devices(self) -> tuple[GrantedDevice, ...]:
        """All devices of the gang."""
        return tuple(device for part in self.parts for slot in part.replicas for device in slot.devices)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a gang is not placed. ``final``: the whole fleet could never hold it."""

    pending: Pending
    reason: Reason
    final: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """What one cycle decided: every pending gang is in one of the two."""

    placements: tuple[Placement, ...]
    refusals: tuple[Refusal, ...]


@dataclass(slots=True)
class _Cycle:
    """What a cycle has come to: who was placed, who waits behind how many holds, and what these keep."""

    board: Board
    placements: list[Placement] = field(default_factory=list)
    waiting: list[tuple[Pending, int]] = field(default_factory=list)
    kept: list[tuple[Comeback, Taken]] = field(default_factory=list)

    def keep(self, comeback: Comeback) -> None:
        """Take what is held for a job before those that come later, unless it was placed."""
        if all(comeback.job != placed.pending.job for placed in self.placements):
            self.kept.append((comeback, self.board.keep(comeback)))


def decide(view: FleetView, pending: Iterable[Pending], comebacks: Iterable[Comeback] = ()) -> Decision:
    """Place gangs by priority, then in the order they were submitted; the rest are refused as of the end of the cycle.

    What is held for a job that comes back is given to nobody behind it. The view only shrinks while gangs are placed,
    so a shape that did not fit once is not tried again. O(gangs x (domains looked at + nodes of one domain)).
    """
    cycle = _Cycle(Board(view))
    holds = deque(sorted(comebacks, key=_place_of))
    unfit: set[tuple[str, Demand]] = set()
    for gang in sorted(pending, key=_order):
        while holds and _place_of(holds[0]) < _place_of(gang):
            cycle.keep(holds.popleft())
        placement = None if gang.shape in unfit else _place(cycle.board, gang)
        if placement is None:
            unfit.add(gang.shape)
            cycle.waiting.append((gang, len(cycle.kept)))
        else:
            cycle.placements.append(placement)
    return Decision(tuple(cycle.placements), _refusals(view, cycle))


def withhold(pending: Iterable[Pending]) -> Decision:
    """Place nothing, for new grants are stopped, and say so to all."""
    why = behind()
    return Decision((), tuple(Refusal(gang, why, final=False) for gang in pending))


def _place(board: Board, gang: Pending) -> Placement | None:
    nodes = board.find(gang.gpu_class, gang.demand)
    if nodes is None:
        return None
    parts = _parts(board, gang, nodes)
    board.take(ask_of(gang.gpu_class, gang.demand), nodes)
    return Placement(gang, parts)


def _parts(board: Board, gang: Pending, nodes: list[tuple[int, int]]) -> tuple[PlacedPart, ...]:
    """Ranks run along the nodes' order, which is the topology's; devices are taken in the order of their indices."""
    parts, rank, each = [], 0, gang.demand.devices_per_replica
    for node, count in nodes:
        offered = board.view.stock[gang.gpu_class].devices[node]
        start = len(offered) - int(board.free[gang.gpu_class][node])
        slots = tuple(
            ReplicaSlot(rank=rank + i, devices=offered[start + i * each : start + (i + 1) * each]) for i in range(count)
        )
        parts.append(PlacedPart(board.view.nodes[node], slots))
        rank += count
    return tuple(parts)


def _refusals(view: FleetView, cycle: _Cycle) -> tuple[Refusal, ...]:
    """One verdict a shape behind the same holds, on the view as the cycle leaves it, without the holds behind it."""
    board, full = cycle.board, Board(view, empty=True)
    verdicts: dict[tuple[str, Demand, int], tuple[Reason, bool]] = {}
    given_back = len(cycle.kept)
    for gang, ahead in reversed(cycle.waiting):
        while given_back > ahead:
            given_back -= 1
            board.give_back(cycle.kept[given_back][1])
        key = (*gang.shape, ahead)
        if key not in verdicts:
            verdicts[key] = verdict(board, full, gang.gpu_class, gang.demand)
    for _, taken in cycle.kept[:given_back]:
        board.give_back(taken)
    for gpu_class, demand, ahead in verdicts if cycle.kept else ():
        holds = [(hold, taken.total) for hold, taken in cycle.kept[:ahead] if taken.gpu_class == gpu_class]
        why, final = verdicts[gpu_class, demand, ahead]
        if not final and any(devices for _, devices in holds) and board.find(gpu_class, demand) is not None:
            verdicts[gpu_class, demand, ahead] = held_for_others(why, holds), False
    return tuple(Refusal(gang, *verdicts[(*gang.shape, ahead)]) for gang, ahead in cycle.waiting)


def _order(gang: Pending) -> tuple[int, datetime, str, int]:
    return (*_place_of(gang), gang.attempt)


def _place_of(one: Pending | Comeback) -> tuple[int, datetime, str]:
    return (-one.priority, one.queued_at, one.job)


@lru_cache(1_000)
def _plain(demand: Demand) -> Demand:
    """The demand without its wish of classes, for admission has chosen, and of a time to come back."""
    return demand.model_copy(update={"classes": (), "recovery_seconds": None})
