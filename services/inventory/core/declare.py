"""What a cluster's document changes: which nodes there are to be, and which leave."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from schemas.ids import ClusterId, NodeId
from schemas.runtime import ObservedDevice
from schemas.spec.cluster import Cluster as ClusterDocument
from schemas.spec.cluster import NodeSpec
from services.inventory.core.view import Cluster, Node, Standing, View


def declare(view: View, document: ClusterDocument, generation: int, *, now: datetime) -> View:
    """Return the view after a cluster's document; an older generation than the known one changes nothing.

    Declared nodes are there at once, with the devices they are declared to have until their agent reports. Nodes the
    document leaves out take no new work and are retired later, unless they are too many at once (``leaving``).
    """
    known = view.clusters.get(document.id, Cluster(document.id))
    if known.generation >= generation:
        return view
    cluster = replace(
        known,
        name=document.metadata.name,
        backend=document.spec.backend,
        levels=document.spec.all_levels(),
        generation=generation,
    )
    declared = [_declared(view.nodes, document, spec) for spec in document.spec.nodes]
    nodes = {**view.nodes, **{node.id: node for node in declared}}
    view = replace(view, clusters={**view.clusters, cluster.id: cluster}, nodes=nodes)
    left = leaving(view, cluster.id, {node.id for node in declared}, now=now)
    return replace(view, nodes={**nodes, **{node.id: node for node in left}})


def leaving(view: View, cluster: ClusterId, declared: Iterable[NodeId], *, now: datetime) -> list[Node]:
    """Return the cluster's nodes that its document leaves out, with their new standing.

    A document that takes away more than half of the nodes in service (reported once, no mark) is rather a mistake:
    those stay in service, Held, until a person cordons or drains them or a document says otherwise. Silence does not
    count as out of service: unknown is not gone.
    """
    named = set(declared)
    present = [node for node in view.nodes.values() if node.cluster == cluster and not node.retired]
    left = [n for n in present if n.id not in named and n.standing in (Standing.DECLARED, Standing.HELD)]
    serving = {n.id for n in present if n.reported and n.standing is not Standing.LEFT_OUT and not view.marks(n.id)}
    losing = {node.id for node in left} & serving
    too_many = 2 * len(losing) > len(serving)
    return [
        replace(node, standing=Standing.HELD) if too_many and node.id in losing else left_out(node, now)
        for node in left
    ]


def left_out(node: Node, now: datetime) -> Node:
    """Return the node on its way out."""
    return replace(node, standing=Standing.LEFT_OUT, left_out_at=now)


def _declared(nodes: Mapping[NodeId, Node], document: ClusterDocument, spec: NodeSpec) -> Node:
    identity = document.node_id(spec.name)
    known = nodes.get(identity, Node(identity, document.id, spec.name, Standing.DECLARED))
    return replace(
        known,
        standing=Standing.DECLARED,
        place=dict(spec.place),
        cpu_milli=spec.cpu,
        memory_mib=spec.memory,
        devices=known.devices if known.reported else _devices(document, spec),
        left_out_at=None,
        retired=False,
    )


def _devices(document: ClusterDocument, spec: NodeSpec) -> tuple[ObservedDevice, ...]:
    return tuple(
        ObservedDevice(device=device, index=index, uuid=uuid, model=spec.model, memory_mib=spec.device_memory)
        for device, index, uuid in document.declared_devices(spec)
    )
