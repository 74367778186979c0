"""The trace as documents that a person could write: fleet, tenants' queues, and one job a pod. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deploy.embedded.demo.openb.lists import Node, Pod, Trace
from libs.orchestrators.script import CODE, SECONDS

CLUSTER, QUEUE = "openb", "pods"
TENANTS = {"LS": "latency", "BE": "best-effort", "Burstable": "burstable", "Guaranteed": "guaranteed"}
PRICES = {  # an hour of one device, in USD: made up, in the order of what such devices cost
    "t4": "0.35", "p100": "0.60", "a10": "0.75", "v100m16": "1.20", "v100m32": "1.60", "g2": "1.80", "g3": "2.50"
}  # fmt: skip
DEAREST = "3.00"
COMMON = 10  # one node in so many

Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class Wish:
    """A job to be handed in at a time (seconds from the start of the play), and how it has to end."""

    name: str
    at: float
    document: Document
    ends: str


@dataclass(frozen=True, slots=True)
class Play:
    """What is declared, what is handed in, and pods that no node of the fleet could ever hold."""

    fleet: str
    queues: str
    tenants: tuple[str, ...]
    wishes: tuple[Wish, ...]
    impossible: tuple[str, ...]
    stock: Mapping[str, int]  # devices by class


def plan(trace: Trace, *, seconds: float, stretch: float) -> Play:
    """Return the play of a trace that lasts ``seconds``; runs last ``stretch`` times their share of it."""
    scale = seconds / (trace.length or 1.0)
    shapes = _shapes(trace.nodes)
    able = {pod.name: _able(shapes, pod) for pod in trace.pods}
    held = [pod for pod in trace.pods if able[pod.name]]
    wishes = [_wish(pod, able[pod.name], scale, stretch) for pod in held]
    stock = _stock(trace.nodes)
    return Play(
        fleet="\n---\n".join(map(json.dumps, _fleet(trace.nodes, stock))),
        queues="\n---\n".join(map(json.dumps, _queues(held, able, stock))),
        tenants=tuple(sorted({tenant_of(pod) for pod in held})),
        wishes=tuple(wishes),
        impossible=tuple(pod.name for pod in trace.pods if not able[pod.name]),
        stock=stock,
    )


def tenant_of(pod: Pod) -> str:
    """Return the tenant that stands for the pod's quality of service."""
    return TENANTS.get(pod.service, "others")


def _able(nodes: Mapping[Node, int], pod: Pod) -> tuple[str, ...]:
    """The classes the pod accepts, the cheapest first.

    Of those whose nodes could hold it, these where a tenth of the nodes could; where there is none of them, all: one
    odd node of a class would otherwise draw all such pods, one after the other.
    """
    could: Counter[str] = Counter()
    there: Counter[str] = Counter()
    for node, count in nodes.items():
        if not pod.models or node.model in pod.models:
            there[node.model] += count
            could[node.model] += count if _holds(node, pod) else 0
    able = [model for model in there if could[model]]
    common = [model for model in able if could[model] * COMMON >= there[model]]
    return tuple(sorted((model.lower() for model in common or able), key=_by_price))


def _holds(node: Node, pod: Pod) -> bool:
    return node.devices >= pod.devices and node.cpu_milli >= pod.cpu_milli and node.memory_mib >= pod.memory_mib


def _shapes(nodes: Iterable[Node]) -> Mapping[Node, int]:
    """Nodes of one shape, counted: pods are many, shapes are few."""
    return Counter(Node("", node.cpu_milli, node.memory_mib, node.devices, node.model) for node in nodes)


def _stock(nodes: Iterable[Node]) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for node in nodes:
        counts[node.model.lower()] += node.devices
    return {name: counts[name] for name in sorted(counts, key=_by_price)}


def _by_price(name: str) -> tuple[float, str]:
    return float(PRICES.get(name, DEAREST)), name


def _fleet(nodes: Sequence[Node], stock: Mapping[str, int]) -> Iterator[Document]:
    models = {node.model.lower(): node.model for node in nodes}
    for name in stock:
        price = f"{PRICES.get(name, DEAREST)} USD"
        yield _document("GpuClass", {"name": name}, {"match": {"model": models[name]}, "pricePerHour": price})
    listed = [
        {
            "name": node.name,
            "devices": node.devices,
            "model": node.model,
            "cpu": f"{node.cpu_milli}m",
            "memory": f"{node.memory_mib}Mi",
        }
        for node in nodes
    ]
    yield _document("Cluster", {"name": CLUSTER}, {"backend": "pretend", "nodes": listed})


def _queues(pods: Sequence[Pod], able: Mapping[str, Sequence[str]], stock: Mapping[str, int]) -> Iterator[Document]:
    """A tenant's quota of every class is its share of all devices asked for, so that quotas add up to the fleet.

    Where a pod would have no quota large enough, the largest class it accepts is given one.
    """
    asked: Counter[str] = Counter()
    needed: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        tenant, best = tenant_of(pod), max(able[pod.name], key=stock.__getitem__)
        asked[tenant] += pod.devices
        needed[tenant, best] = max(needed[tenant, best], pod.devices)
    for tenant, devices in sorted(asked.items()):
        quotas = [
            {"class": name, "nominal": max(needed[tenant, name], total * devices // asked.total())}
            for name, total in stock.items()
        ]
        yield _document("Queue", {"name": QUEUE, "tenant": tenant}, {"order": "BestEffortFIFO", "quotas": quotas})


def _wish(pod: Pod, classes: Sequence[str], scale: float, stretch: float) -> Wish:
    env = {SECONDS: f"{pod.lasted * scale * stretch:.6f}", CODE: "1" if pod.failed else "0"}
    spec: Document = {
        "queue": QUEUE,
        "classes": list(classes),
        "devicesPerReplica": pod.devices,
        "cpuPerReplica": f"{pod.cpu_milli}m",
        "memoryPerReplica": f"{pod.memory_mib}Mi",
        "env": env,
        "command": [pod.name],
    }
    document = _document("Job", {"name": pod.name, "tenant": tenant_of(pod)}, spec)
    return Wish(pod.name, pod.created * scale, document, "Failed" if pod.failed else "Succeeded")


def _document(kind: str, metadata: Mapping[str, str], spec: Mapping[str, object]) -> Document:
    return {"apiVersion": "triplane/v1", "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}
