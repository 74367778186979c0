"""Builders of what is said about the fleet: documents, reports, drains, nodes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from schemas.base import Envelope, Event
from schemas.fleet import (
    DeviceInfo,
    DrainLifted,
    DrainRequested,
    Mark,
    MarkEffect,
    NodeChanged,
    NodeDiscovered,
    NodeInfo,
    NodeRetired,
)
from schemas.ids import DrainId, cluster_id, device_id, node_id
from schemas.reasons import Code, Layer, reason
from schemas.runtime import ObservationReported, ObservedDevice
from schemas.workload import RequestApplied, RequestOrdered
from tests.support.builders import DEMO, NOON, a_node_id, an_envelope

H100 = "NVIDIA H100 80GB HBM3"


def a_node_spec(name: str = "n1", devices: int = 8, *, model: str = H100, **more: Any) -> dict[str, Any]:
    """Return a node as a cluster's document lists it."""
    return {"name": name, "devices": devices, "model": model, **more}


def a_cluster(*nodes: dict[str, Any] | str, name: str = "demo", backend: str = "local") -> RequestApplied:
    """Return a cluster's declaration; a bare name stands for an ordinary node."""
    listed = [a_node_spec(node) if isinstance(node, str) else node for node in nodes]
    return _applied("Cluster", name, {"backend": backend, "nodes": listed})


def a_class(name: str = "h100", model: str = H100) -> RequestApplied:
    """Return a class's declaration."""
    return _applied("GpuClass", name, {"match": {"model": model}, "pricePerHour": "2.50 USD"})


def _applied(kind: Literal["Cluster", "GpuClass"], name: str, spec: dict[str, Any]) -> RequestApplied:
    document: dict[str, Any] = {"apiVersion": "triplane/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return RequestApplied(kind=kind, tenant=None, name=name, document=document, applied_by="ops")


def some_devices(
    node: str = "n1", count: int = 8, *, model: str = H100, maker: str = "GPU-demo"
) -> tuple[ObservedDevice, ...]:
    """Return devices as a node of the cluster demo sees them; the maker's word makes other devices of them."""
    uuids = [f"{maker}-{node}-{index}" for index in range(count)]
    return tuple(
        ObservedDevice(device=device_id(a_node_id(node), uuid), index=index, uuid=uuid, model=model)
        for index, uuid in enumerate(uuids)
    )


def a_report(
    node: str = "n1",
    sequence: int = 1,
    *,
    devices: Sequence[ObservedDevice] | None = None,
    incarnation: str = "agent-1",
    hello: bool = False,
    blind: bool = False,
    cluster: str = "demo",
    observed: datetime = NOON,
) -> ObservationReported:
    """Return the heartbeat of a node's agent."""
    destination = cluster_id(cluster)
    return ObservationReported(
        node=node_id(destination, node),
        cluster=destination,
        cluster_name=cluster,
        node_name=node,
        machine=f"machine-{node}",
        boot="boot-1",
        incarnation=incarnation,
        sequence=sequence,
        hello=hello,
        devices=some_devices(node) if devices is None else tuple(devices),
        holders=(),
        blind=reason(Layer.NODE, Code.NODE_BLIND) if blind else None,
        cpu_milli=64_000,
        memory_mib=512_000,
        observed_at=observed,
    )


def a_drain_id(name: str = "d1") -> DrainId:
    """Return a drain's id."""
    return DrainId(f"drain_{name}")


def a_drain(
    node: str = "n1", name: str = "d1", *, effect: MarkEffect = MarkEffect.NO_SCHEDULE, when: datetime = NOON
) -> DrainRequested:
    """Return health's request to take a node out of service."""
    return DrainRequested(
        drain=a_drain_id(name),
        cluster=DEMO,
        node=a_node_id(node),
        effect=effect,
        owner="ops@example",
        reason="new firmware",
        session="s1",
        requested_at=when,
    )


def a_mark(name: str = "d1", *, effect: MarkEffect = MarkEffect.NO_SCHEDULE, when: datetime = NOON) -> Mark:
    """Return the mark that a drain leaves on its node."""
    return Mark(
        drain=a_drain_id(name), effect=effect, owner="ops@example", reason="new firmware", session="s1", since=when
    )


def a_lift(node: str = "n1", name: str = "d1") -> DrainLifted:
    """Return the end of a drain."""
    return DrainLifted(
        drain=a_drain_id(name), cluster=DEMO, node=a_node_id(node), lifted_by="ops@example", reason="firmware is new"
    )


def an_order(
    order: Literal["cordon", "drain", "uncordon"], node: str = "n1", *, why: str = "new firmware", owner: str = "ops@x"
) -> RequestOrdered:
    """Return an operator's order about a node."""
    return RequestOrdered(order=order, cluster=DEMO, node=a_node_id(node), owner=owner, reason=why, session="s1")


def an_info(node: str = "n1", *, marks: tuple[Mark, ...] = (), devices: int = 8, **more: Any) -> NodeInfo:
    """Return a node of the cluster demo as inventory says it."""
    seen = some_devices(node, devices)
    infos = tuple(
        DeviceInfo(device=d.device, index=d.index, uuid=d.uuid, model=d.model, gpu_class="h100") for d in seen
    )
    values: dict[str, Any] = {"cpu_milli": 64_000, "memory_mib": 512_000, "reported": True, **more}
    return NodeInfo(
        node=a_node_id(node), cluster=DEMO, cluster_name="demo", name=node, devices=infos, marks=marks, **values
    )


def discovered(node: str = "n1", **more: Any) -> NodeDiscovered:
    """Return inventory's first word of a node."""
    return NodeDiscovered(info=an_info(node, **more))


def changed(node: str = "n1", **more: Any) -> NodeChanged:
    """Return inventory's word that a node changed."""
    return NodeChanged(info=an_info(node, **more))


def retired(node: str = "n1") -> NodeRetired:
    """Return inventory's last word of a node."""
    return NodeRetired(node=a_node_id(node), cluster=DEMO)


def fleet_fact(fact: Event, key: str, version: int = 1) -> Envelope:
    """Return a fact of the cluster demo on its way."""
    return an_envelope(fact, key=key, version=version, scope=DEMO)


def report_fact(report: ObservationReported) -> Envelope:
    """Return a report on its way; no two of an agent share an id."""
    return an_envelope(report, key=report.node, version=report.sequence, scope=report.cluster)
