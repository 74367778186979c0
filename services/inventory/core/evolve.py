"""What a fact changes in inventory's memory."""

from dataclasses import replace
from datetime import datetime

from schemas.base import Event
from schemas.fleet import DrainLifted, DrainRequested, Mark
from schemas.ids import DrainId, NodeId
from schemas.runtime import ObservationReported
from schemas.spec.cluster import Cluster as ClusterDocument
from schemas.spec.gpuclass import GpuClass as GpuClassDocument
from schemas.workload import RequestApplied
from services.inventory.core.declare import declare, left_out
from services.inventory.core.view import Beat, GpuClass, Hold, Node, Standing, View


def evolve(view: View, fact: Event, *, version: int, now: datetime) -> View:
    """Return the view after a fact. ``version`` is the entity's, ``now`` the database's time of the turn.

    Raises ValueError for a document that cannot be read.
    """
    match fact:
        case RequestApplied(kind="Cluster"):
            return declare(view, ClusterDocument.model_validate(fact.document), version, now=now)
        case RequestApplied(kind="GpuClass"):
            return _classed(view, GpuClassDocument.model_validate(fact.document), version)
        case ObservationReported():
            return _reported(view, fact, now)
        case DrainRequested():
            return _marked(view, fact, version, now)
        case DrainLifted():
            return _held(view, fact.node, fact.drain, Hold(version, None))
        case _:
            return view


def _with_node(view: View, node: Node) -> View:
    return replace(view, nodes={**view.nodes, node.id: node})


def _classed(view: View, document: GpuClassDocument, generation: int) -> View:
    name = document.metadata.name
    known = view.classes.get(name)
    if known is not None and known.generation >= generation:
        return view
    gpu_class = GpuClass(name, document.spec.match.model, generation)
    return replace(view, classes={**view.classes, name: gpu_class})


def _reported(view: View, fact: ObservationReported, now: datetime) -> View:
    """Take a report of a declared cluster's agent; its node need not be declared."""
    cluster = view.clusters.get(fact.cluster)
    if cluster is None or not cluster.generation:
        return view
    node = view.nodes.get(fact.node, Node(fact.node, fact.cluster, fact.node_name, Standing.FOUND))
    if not is_newer(fact, node.beat):
        return view
    node = replace(node, beat=Beat(fact.incarnation, fact.sequence, now), stale=False)
    return _with_node(view, node if fact.blind else _seen(node, fact))


def is_newer(fact: ObservationReported, beat: Beat | None) -> bool:
    """Say whether a report is newer than the newest: its number is higher, or another agent says hello.

    The number is drawn from the node's clock, which may have been put back before that agent started.
    """
    if beat is None or fact.sequence > beat.sequence:
        return True
    return fact.hello and fact.incarnation != beat.incarnation


def _seen(node: Node, fact: ObservationReported) -> Node:
    """Return the node with what its agent sees. An empty answer takes no device away, but none is offered then."""
    machine = replace(node, machine_cpu_milli=fact.cpu_milli, machine_memory_mib=fact.memory_mib)
    if node.devices and not fact.devices:
        return replace(machine, reported=False)
    return replace(machine, devices=fact.devices, reported=True)


def _marked(view: View, fact: DrainRequested, version: int, now: datetime) -> View:
    mark = Mark(
        drain=fact.drain,
        effect=fact.effect,
        owner=fact.owner,
        reason=fact.reason,
        session=fact.session,
        since=fact.requested_at,
    )
    view = _held(view, fact.node, fact.drain, Hold(version, mark))
    node = view.nodes.get(fact.node)
    if node is None or node.standing is not Standing.HELD or not view.marks(node.id):
        return view
    return _with_node(view, left_out(node, now))  # a person confirmed that it is to go


def _held(view: View, node: NodeId, drain: DrainId, hold: Hold) -> View:
    holds = view.holds.get(node, {})
    if drain in holds and holds[drain].version >= hold.version:
        return view
    return replace(view, holds={**view.holds, node: {**holds, drain: hold}})
