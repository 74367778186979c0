"""Who an agent is."""

from dataclasses import dataclass

from schemas.ids import ClusterId, NodeId, cluster_id, node_id


@dataclass(frozen=True, slots=True)
class Identity:
    """One node. ``incarnation`` is drawn at every start of the agent: of two on one machine the newest counts."""

    cluster_name: str
    node_name: str
    machine: str
    boot: str
    incarnation: str

    @property
    def cluster(self) -> ClusterId:
        """The cluster's id."""
        return cluster_id(self.cluster_name)

    @property
    def node(self) -> NodeId:
        """The node's id."""
        return node_id(self.cluster, self.node_name)
