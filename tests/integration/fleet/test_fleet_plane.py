"""Inventory and health together on real servers: an order becomes a mark, and the mark an answer."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from libs.service import Service
from schemas.base import Envelope
from schemas.fleet import (
    DrainAcknowledged,
    DrainCompleted,
    DrainLifted,
    DrainRequested,
    MarkEffect,
    NodeChanged,
    NodeDiscovered,
    NodeInfo,
)
from services.health import app as health
from services.health.core import Verb
from services.health.settings import Settings as HealthSettings
from services.inventory import app as inventory
from services.inventory.settings import Settings as InventorySettings
from tests.support.builders import a_grant, a_node_id, a_part, an_envelope, at, released
from tests.support.builders_fleet import a_class, a_cluster, a_report, an_order, fleet_fact, report_fact, some_devices
from tests.support.eventually import eventually
from tests.support.servers import Servers
from tests.support.wire import Wire, wire

CLASS = an_envelope(a_class(), key="class_h100")
VERBS: tuple[Verb, ...] = ("cordon", "drain", "uncordon")


@asynccontextmanager
async def plane(servers: Servers, *, replicas: int = 1) -> AsyncIterator[Wire]:
    """Run both services, each in so many replicas, and listen."""
    async with AsyncExitStack() as stack:
        line = await stack.enter_async_context(wire(servers))
        for _ in range(replicas):
            await _run(stack, inventory.build(await servers.infrastructure("inventory"), InventorySettings()))
            settings = HealthSettings(watch_seconds=0.1, settle_seconds=0, sweep_seconds=1)
            await _run(stack, health.build(await servers.infrastructure("health"), settings))
        yield line


async def _run(stack: AsyncExitStack, service: Service) -> None:
    await service.start()
    stack.push_async_callback(service.stop)


def order(verb: Verb, number: int, node: str = "n1") -> Envelope:
    return replace(fleet_fact(an_order(verb, node), f"order_{number}"), time=at(number))


def node_now(line: Wire, node: str) -> NodeInfo:
    """Return the node's last word."""
    words = [e for e in line.heard if e.key == a_node_id(node) and isinstance(e.data, NodeDiscovered | NodeChanged)]
    last = max(words, key=lambda envelope: envelope.version).data
    assert isinstance(last, NodeDiscovered | NodeChanged)
    return last.info


async def test_a_drain_is_ordered_marked_emptied_and_lifted(servers: Servers) -> None:
    grant = a_grant("a", a_part("n1"))
    async with plane(servers) as line:
        await line.say(CLASS, an_envelope(a_cluster("n1", "n2"), key="cluster_demo"))
        await line.wait(NodeDiscovered, 2)
        await line.say(report_fact(a_report()), an_envelope(grant, key=grant.grant), order("drain", 1))
        await line.wait(DrainAcknowledged)
        (mark,) = node_now(line, "n1").marks
        assert (mark.effect, mark.owner, mark.reason) == (MarkEffect.DRAIN, "ops@x", "new firmware")
        await line.say(an_envelope(released(grant), key=grant.grant))
        await line.wait(DrainCompleted)
        await line.say(order("uncordon", 2))
        await line.wait(DrainLifted)
        await eventually(lambda: node_now(line, "n1").marks == ())


async def test_an_order_that_comes_before_its_node_is_answered_when_the_node_comes(servers: Servers) -> None:
    async with plane(servers) as line:
        await line.say(order("cordon", 1))
        await line.wait(DrainRequested)
        await line.say(an_envelope(a_cluster("n1"), key="cluster_demo"))
        await line.wait(DrainCompleted)
        assert [mark.effect for mark in node_now(line, "n1").marks] == [MarkEffect.NO_SCHEDULE]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_whatever_comes_late_and_twice_the_plane_ends_where_the_newest_facts_say(
    servers: Servers, seed: int
) -> None:
    dice, nodes = Random(seed), [f"n{number}" for number in range(1, 7)]
    orders = [(dice.choice(VERBS), number, dice.choice(nodes)) for number in range(1, 31)]
    counts = {(node, sequence): dice.randint(1, 8) for node in nodes for sequence in range(1, 6)}
    facts = [order(*each) for each in orders]
    facts += [
        report_fact(a_report(node, sequence, devices=some_devices(node, count)))
        for (node, sequence), count in counts.items()
    ]
    dice.shuffle(facts)
    async with plane(servers, replicas=2) as line:
        await line.say(CLASS, an_envelope(a_cluster(*nodes), key="cluster_demo"))
        await line.wait(NodeDiscovered, len(nodes))
        for fact in facts + dice.sample(facts, len(facts)):
            await line.say(fact, again=f".{dice.random()}")
        expected = {node: (counts[node, 5], _effects(orders, node)) for node in nodes}
        await eventually(lambda: {node: _summary(node_now(line, node)) for node in nodes} == expected, 45)
        await eventually(lambda: _each_version_is_said_once(line))


def _summary(info: NodeInfo) -> tuple[int, list[MarkEffect]]:
    return len(info.devices), [mark.effect for mark in info.marks]


def _effects(orders: list[tuple[Verb, int, str]], node: str) -> list[MarkEffect]:
    verbs = [verb for verb, _, about in orders if about == node]
    since = verbs[len(verbs) - verbs[::-1].index("uncordon") :] if "uncordon" in verbs else verbs
    return [MarkEffect.DRAIN if "drain" in since else MarkEffect.NO_SCHEDULE] if since else []


def _each_version_is_said_once(line: Wire) -> bool:
    versions = defaultdict(set)
    for envelope in line.heard:
        if envelope.type.startswith("fleet."):
            versions[envelope.key, envelope.version].add((envelope.id, envelope.data.model_dump_json()))
    assert {key: said for key, said in versions.items() if len(said) > 1} == {}
    return all(version == 1 or (key, version - 1) in versions for key, version in versions)
