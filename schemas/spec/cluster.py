"""kind: Cluster."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from schemas.ids import ClusterId, DeviceId, NodeId, cluster_id, device_id, node_id
from schemas.spec.base import API_VERSION, Cpu, Memory, Metadata, Name, Written


class NodeSpec(Written):
    """A declared node: so many devices of one model, and its domain at each topology level."""

    name: Name
    devices: int = Field(ge=0, le=1_024)
    model: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    memory: Memory = 0
    cpu: Cpu = 0
    device_memory: Memory = 0
    place: dict[Name, Name] = Field(default_factory=dict, max_length=16)


class ClusterSpec(Written):
    """The backend, the topology levels from the widest to the narrowest, and the nodes.

    Levels left out are those of the nodes' places, in order of appearance.
    """

    backend: Literal["local", "pretend"]
    levels: tuple[Name, ...] = Field(default=(), max_length=16)
    nodes: tuple[NodeSpec, ...] = Field(default=(), max_length=100_000)

    @model_validator(mode="after")
    def _nodes_are_clear(self) -> Self:
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                raise ValueError(f"node {node.name} is listed twice")
            seen.add(node.name)
            unknown = [level for level in node.place if self.levels and level not in self.levels]
            if unknown:
                raise ValueError(f"node {node.name}: place names level {unknown[0]}, which is not in levels")
        return self

    def all_levels(self) -> tuple[str, ...]:
        """Return the topology levels, from the widest to the narrowest."""
        return self.levels or tuple(dict.fromkeys(level for node in self.nodes for level in node.place))


class Cluster(Written):
    """One destination. Fleet-wide: it has no tenant."""

    api_version: Literal["triplane/v1"] = API_VERSION
    kind: Literal["Cluster"] = "Cluster"
    metadata: Metadata
    spec: ClusterSpec

    @property
    def id(self) -> ClusterId:
        """The cluster's id, from its name."""
        return cluster_id(self.metadata.name)

    def node_id(self, name: str) -> NodeId:
        """Return the id of one of its nodes."""
        return node_id(self.id, name)

    def declared_devices(self, node: NodeSpec) -> tuple[tuple[DeviceId, int, str], ...]:
        """Return (id, index, uuid) of a node's declared devices; uuids are made from the names."""
        uuids = [f"GPU-{self.metadata.name}-{node.name}-{index}" for index in range(node.devices)]
        return tuple((device_id(self.node_id(node.name), uuid), index, uuid) for index, uuid in enumerate(uuids))
