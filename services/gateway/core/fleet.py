"""The read model of nodes and of what is granted on them, folded in whatever order and number facts come."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from schemas import fleet as f
from schemas import workload as w
from schemas.base import Envelope, Value
from schemas.ids import DeviceId, GrantId, JobId, NodeId
from schemas.lifecycle import PartState
from schemas.reasons import UNPROVED, Code

UNCLASSED: Final = ""
PART_RANK: Final = {state: rank for rank, state in enumerate(PartState)}
RELEASED_RANK: Final = PART_RANK[PartState.RELEASED]


class NodeView(Value):
    """A node as far as facts tell; each piece keeps the version it came with."""

    node: NodeId
    info: f.NodeInfo | None = None
    info_version: int = 0
    stale: bool = False
    stale_version: int = 0
    seen_at: datetime | None = None
    retired_version: int = 0

    @property
    def is_retired(self) -> bool:
        """It was taken out of the declaration and has not come back."""
        return self.retired_version > self.info_version

    def devices_by_class(self) -> dict[str, int]:
        """Return how many devices the node has of each class; those of no class under the empty name."""
        devices = self.info.devices if self.info else ()
        return dict(Counter(device.gpu_class or UNCLASSED for device in devices))


def node_of(envelope: Envelope) -> NodeId | None:
    """Return the node that a fact of the inventory is about."""
    return NodeId(envelope.key) if envelope.type.startswith("fleet.node.") else None


def evolve(view: NodeView, envelope: Envelope) -> NodeView:
    """Return the view after a fact. Any order and any doubles of the same facts give the same view."""
    version, fact = envelope.version, envelope.data
    match fact:
        case f.NodeDiscovered() | f.NodeChanged() | f.NodeOwnerChanged():
            if version > view.info_version:
                view = view.model_copy(update={"info": fact.info, "info_version": version})
            return _freshness(view, version, stale=fact.info.stale, seen_at=view.seen_at)
        case f.NodeWentStale():
            return _freshness(view, version, stale=True, seen_at=fact.last_report_at)
        case f.NodeFreshened():
            return _freshness(view, version, stale=False, seen_at=fact.reported_at)
        case f.NodeRetired():
            return view.model_copy(update={"retired_version": max(version, view.retired_version)})
        case _:
            return view


def _freshness(view: NodeView, version: int, *, stale: bool, seen_at: datetime | None) -> NodeView:
    moments = [moment for moment in (view.seen_at, seen_at) if moment is not None]
    newest = {"seen_at": max(moments, default=None)}
    if version <= view.stale_version:
        return view.model_copy(update=newest)
    return view.model_copy(update={"stale": stale, "stale_version": version, **newest})


class PartView(Value):
    """A part of a grant: what it holds on one node. ``rank`` only rises: Issued, Claimed, Revoking, Released.

    ``named_by``: the rank of the word that names the devices; a claim names those really used. ``lost``: its proof of
    release was given up, so that the platform is charged and not the queue.
    """

    grant: GrantId
    node: NodeId
    job: JobId
    attempt: int
    rank: int
    named_by: int = -1
    lost: bool = False
    gpu_class: str = ""
    devices: tuple[DeviceId, ...] = ()


def parts_of(envelope: Envelope) -> list[PartView]:
    """Return what a fact says about parts of grants."""
    fact = envelope.data
    match fact:
        case w.GrantIssued():
            return [
                _part(fact, part.node, PartState.ISSUED, fact.gpu_class, tuple(d.device for d in part.devices))
                for part in fact.parts
            ]
        case w.GrantConfirmed():
            return [_part(fact, fact.node, PartState.CLAIMED, "", fact.devices)]
        case w.GrantReleased():
            return [_part(fact, fact.node, PartState.RELEASED, fact.gpu_class, fact.devices)]
        case w.GrantNarrowed() | w.GrantRevoked() | w.GrantSuspected():
            return _on_their_way(fact)
        case _:
            return []


def _on_their_way(fact: w.GrantNarrowed | w.GrantRevoked | w.GrantSuspected) -> list[PartView]:
    """Parts that wait for their proof, and those for which it is overdue."""
    match fact:
        case w.GrantNarrowed():
            return [_part(fact, fact.node, PartState.REVOKING, "", fact.devices)]
        case w.GrantRevoked():
            lost = fact.reason.code is Code.NODE_LOST
            return [_part(fact, node, PartState.REVOKING).model_copy(update={"lost": lost}) for node in fact.nodes]
        case w.GrantSuspected():
            lost = fact.reason.code in UNPROVED and bool(fact.devices)
            return [_part(fact, fact.node, PartState.ISSUED).model_copy(update={"lost": True})] if lost else []


_GrantFact = w.GrantIssued | w.GrantConfirmed | w.GrantNarrowed | w.GrantSuspected | w.GrantRevoked | w.GrantReleased


def _part(
    fact: _GrantFact, node: NodeId, state: PartState, gpu_class: str = "", devices: tuple[DeviceId, ...] = ()
) -> PartView:
    return PartView(
        grant=fact.grant,
        node=node,
        job=fact.job,
        attempt=fact.attempt,
        rank=PART_RANK[state],
        named_by=PART_RANK[state] if devices else -1,
        gpu_class=gpu_class,
        devices=devices,
    )


def merged(parts: Iterable[PartView]) -> Mapping[tuple[GrantId, NodeId], PartView]:
    """Return one view a part: the furthest state, and devices and class from whoever names them."""
    found: dict[tuple[GrantId, NodeId], PartView] = {}
    for part in parts:
        key = part.grant, part.node
        found[key] = merge(found[key], part) if key in found else part
    return found


def merge(one: PartView, other: PartView) -> PartView:
    """Return what two views of the same part tell together, whichever came first."""
    named = one if one.named_by >= other.named_by else other
    return one.model_copy(
        update={
            "rank": max(one.rank, other.rank),
            "named_by": named.named_by,
            "lost": one.lost or other.lost,
            "devices": named.devices,
            "gpu_class": one.gpu_class or other.gpu_class,
        }
    )
