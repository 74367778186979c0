"""What inventory says: the difference between what is and what was last said."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from schemas.fleet import (
    ClusterChanged,
    ClusterDiscovered,
    DeviceInfo,
    Mark,
    MarkEffect,
    NodeChanged,
    NodeDiscovered,
    NodeFreshened,
    NodeInfo,
    NodeOwnerChanged,
    NodeRetired,
    NodeWentStale,
)
from schemas.ids import ClusterId, DrainId, NodeId, derive
from schemas.runtime import ObservedDevice
from services.inventory.core.moves import marks_of
from services.inventory.core.view import Cluster, Node, Policy, Standing, View

Fact = (
    ClusterDiscovered
    | ClusterChanged
    | NodeDiscovered
    | NodeChanged
    | NodeWentStale
    | NodeFreshened
    | NodeRetired
    | NodeOwnerChanged
)


@dataclass(frozen=True, slots=True)
class Said:
    """A fact with the version that its entity has by it. ``info``: how a node is said to be from now on."""

    fact: Fact
    cluster: ClusterId
    version: int
    node: NodeId | None = None
    info: NodeInfo | None = None

    @property
    def key(self) -> str:
        """The entity's id."""
        return self.node or self.cluster


def decide(before: View, after: View, nodes: Iterable[NodeId]) -> Iterator[Said]:
    """Yield what is to be said about clusters that changed between two views, and about these nodes.

    Nothing is said of a node that is as it was last said to be: a heartbeat is no change.
    """
    for cluster in after.clusters.values():
        yield from _of_cluster(before.clusters.get(cluster.id), cluster)
    classes = _class_of_model(after)
    for key in nodes:
        node = after.nodes.get(key)
        if node is None or (node.retired and node.said is None):
            continue
        info = None if node.retired else _info(after, node, classes)
        for number, fact in enumerate(_of_node(after, node, info), node.version + 1):
            yield Said(fact, node.cluster, number, node.id, info)


def elapse(view: View, policy: Policy, *, now: datetime) -> View:
    """Return the view at a later time: nodes not heard for too long are stale, nodes left out are retired.

    A node that was never heard is not stale. A node is retired only without a live grant (``view.granted``) and a move.
    """
    return replace(
        view, nodes={key: _retired(view, _stale(node, policy, now), policy, now) for key, node in view.nodes.items()}
    )


def said(view: View, facts: Iterable[Said]) -> View:
    """Return the view after these facts were said of it."""
    clusters, nodes = dict(view.clusters), dict(view.nodes)
    for each in facts:
        if each.node is None:
            clusters[each.cluster] = replace(clusters[each.cluster], version=each.version)
        else:
            nodes[each.node] = replace(nodes[each.node], version=each.version, said=each.info)
    return replace(view, clusters=clusters, nodes=nodes)


def _stale(node: Node, policy: Policy, now: datetime) -> Node:
    if node.stale or node.beat is None or now - node.beat.at < timedelta(seconds=policy.stale_seconds):
        return node
    return replace(node, stale=True)


def _retired(view: View, node: Node, policy: Policy, now: datetime) -> Node:
    """Placement hears the mark first: a grant that was on its way is known by the time the node is retired."""
    if node.standing is not Standing.LEFT_OUT or node.left_out_at is None:
        return node
    if node.id in view.granted or node.id in view.moves:
        return node
    settled = now - node.left_out_at >= timedelta(seconds=policy.retire_seconds)
    return replace(node, retired=True) if settled else node


def _of_cluster(before: Cluster | None, after: Cluster) -> Iterator[Said]:
    words = {"cluster": after.id, "name": after.name, "backend": after.backend, "levels": after.levels}
    if not after.generation or (before is not None and replace(before, generation=after.generation) == after):
        return
    kind = ClusterChanged if after.version else ClusterDiscovered
    yield Said(kind.model_validate(words), after.id, after.version + 1)


def _of_node(view: View, node: Node, info: NodeInfo | None) -> Iterator[Fact]:
    before = node.said
    if info is None:
        yield NodeRetired(node=node.id, cluster=node.cluster)
    elif before is None:
        yield NodeDiscovered(info=info)
    else:
        if info.stale != before.stale:
            yield _freshness(node)
        if info.owner_epoch > before.owner_epoch:
            yield NodeOwnerChanged(info=info, before=before.owned_by, move=view.moves[node.id].info.move)
        elif info.model_copy(update={"stale": before.stale}) != before:
            yield NodeChanged(info=info)


def _freshness(node: Node) -> NodeWentStale | NodeFreshened:
    assert node.beat is not None, node
    if node.stale:
        return NodeWentStale(node=node.id, cluster=node.cluster, last_report_at=node.beat.at)
    return NodeFreshened(node=node.id, cluster=node.cluster, reported_at=node.beat.at)


def _info(view: View, node: Node, classes: Mapping[str, str]) -> NodeInfo:
    return NodeInfo(
        node=node.id,
        cluster=node.cluster,
        cluster_name=view.clusters[node.cluster].name,
        name=node.name,
        place=dict(node.place),
        devices=tuple(_device(device, classes) for device in node.devices),
        cpu_milli=node.cpu_milli or node.machine_cpu_milli,
        memory_mib=node.memory_mib or node.machine_memory_mib,
        marks=(*view.marks(node.id), *_own_mark(node), *marks_of(view, node)),
        reported=node.reported,
        stale=node.stale,
        owner=node.owner,
        owner_name=node.owner_name,
        owner_epoch=node.owner_epoch,
    )


def _device(device: ObservedDevice, classes: Mapping[str, str]) -> DeviceInfo:
    return DeviceInfo(
        device=device.device,
        index=device.index,
        uuid=device.uuid,
        model=device.model,
        memory_mib=device.memory_mib,
        gpu_class=classes.get(device.model),
    )


def _class_of_model(view: View) -> Mapping[str, str]:
    """Return the class of each model; of several that match one, the first by name."""
    by_name = sorted(view.classes.values(), key=lambda each: each.name, reverse=True)
    return {each.model: each.name for each in by_name}


def _own_mark(node: Node) -> tuple[Mark, ...]:
    """A node on its way out takes nothing new; declaring it again ends the mark."""
    if node.left_out_at is None:
        return ()
    mark = Mark(
        drain=DrainId(derive("drain", node.id, "left out")),
        effect=MarkEffect.NO_SCHEDULE,
        owner="inventory",
        reason="the cluster's document does not name this node any more",
        session=f"left out of {node.cluster}",
        since=node.left_out_at,
    )
    return (mark,)
