"""What follows from not hearing a node (R7): a mark, then an end of the attempt; never a free device."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from schemas.ids import ClusterId, NodeId


@dataclass(frozen=True, slots=True)
class Heard:
    """When a node was last heard, by the ledger's clock; None: never yet."""

    node: NodeId
    cluster: ClusterId
    at: datetime | None
    suspect: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """After how many seconds of silence what follows."""

    suspect_seconds: int
    node_lost_seconds: int
    cluster_lost_seconds: int
    breaker_nodes: int  # so many nodes newly silent at once, and half the fleet: the fault is rather ours


@dataclass(frozen=True, slots=True)
class Silence:
    """Nodes to mark, to unmark, and those whose attempts end. ``deaf``: too many at once, so nothing follows."""

    suspect: tuple[NodeId, ...] = ()
    fresh: tuple[NodeId, ...] = ()
    lost: tuple[NodeId, ...] = ()
    deaf: bool = False


def judge(nodes: Sequence[Heard], limits: Limits, *, now: datetime) -> Silence:
    """Return what the silence of each node means now. A cluster that is silent as a whole gets its longer time."""
    known = [node for node in nodes if node.at is not None]
    silent = [node for node in known if _age(node, now) >= limits.suspect_seconds]
    fresh = tuple(node.node for node in known if node.suspect and _age(node, now) < limits.suspect_seconds)
    newly = tuple(node.node for node in silent if not node.suspect)
    if len(newly) >= limits.breaker_nodes and 2 * len(newly) > len(known):
        return Silence(fresh=fresh, deaf=True)
    talking = {node.cluster for node in known} - _silent_clusters(known, silent)
    lost = tuple(
        node.node
        for node in silent
        if _age(node, now) >= (limits.node_lost_seconds if node.cluster in talking else limits.cluster_lost_seconds)
    )
    return Silence(newly, fresh, lost)


def _silent_clusters(known: Sequence[Heard], silent: Sequence[Heard]) -> set[ClusterId]:
    counts: dict[ClusterId, int] = {}
    for node in known:
        counts[node.cluster] = counts.get(node.cluster, 0) + 1
    for node in silent:
        counts[node.cluster] -= 1
    return {cluster for cluster, talking in counts.items() if talking == 0}


def _age(node: Heard, now: datetime) -> float:
    assert node.at is not None, node
    return (now - node.at) / timedelta(seconds=1)
