"""One cycle: every pending gang is given all its devices or none, and a reason with numbers."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from schemas.ids import ClusterId, JobId, TenantId
from schemas.reasons import Reason
from schemas.workload import Demand, GrantedDevice, ReplicaSlot, Work
from services.placement.core.board import Board, ask_of
from services.placement.core.reasons import behind, verdict
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


def decide(view: FleetView, pending: Iterable[Pending]) -> Decision:
    """Place gangs by priority, then in the order they were submitted; the rest are refused as of the end of the cycle.

    The view only shrinks while gangs are placed, so a shape that did not fit once is not tried again.
    O(gangs x (domains looked at + nodes of one domain)).
    """
    board = Board(view)
    placements: list[Placement] = []
    waiting: list[Pending] = []
    unfit: set[tuple[str, Demand]] = set()
    for gang in sorted(pending, key=_order):
        placement = None if gang.shape in unfit else _place(board, gang)
        if placement is None:
            unfit.add(gang.shape)
            waiting.append(gang)
        else:
            placements.append(placement)
    return Decision(tuple(placements), _refusals(view, board, waiting))


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


def _refusals(view: FleetView, board: Board, waiting: list[Pending]) -> tuple[Refusal, ...]:
    """One verdict a shape, on the view as the cycle leaves it."""
    verdicts: dict[tuple[str, Demand], tuple[Reason, bool]] = {}
    full = Board(view, empty=True)
    for gang in waiting:
        if gang.shape not in verdicts:
            verdicts[gang.shape] = verdict(board, full, gang.gpu_class, gang.demand)
    return tuple(Refusal(gang, *verdicts[gang.shape]) for gang in waiting)


def _order(gang: Pending) -> tuple[int, datetime, str, int]:
    return (-gang.priority, gang.queued_at, gang.job, gang.attempt)


@lru_cache(1_000)
def _plain(demand: Demand) -> Demand:
    """The demand without its wish of classes: admission has chosen."""
    return demand.model_copy(update={"classes": ()})
