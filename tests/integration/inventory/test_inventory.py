"""Inventory on real NATS and Postgres: what changed is said once, whatever is said twice, lost or restarted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from libs.config import Infrastructure
from schemas.base import Envelope
from schemas.fleet import (
    ClusterDiscovered,
    DrainLifted,
    DrainRequested,
    MarkEffect,
    NodeChanged,
    NodeDiscovered,
    NodeFreshened,
    NodeRetired,
    NodeWentStale,
)
from schemas.workload import GrantIssued, GrantReleased
from services.inventory.app import build
from services.inventory.core import Numbers, count
from services.inventory.settings import Settings
from services.inventory.store import fleet as store
from tests.support.builders import DEMO, a_grant, a_node_id, a_part, an_envelope, released
from tests.support.builders_fleet import (
    a_class,
    a_cluster,
    a_drain,
    a_lift,
    a_mark,
    a_node_spec,
    a_report,
    an_info,
    fleet_fact,
    report_fact,
    some_devices,
)
from tests.support.eventually import eventually
from tests.support.servers import Servers
from tests.support.wire import Wire

LARGE = 1_213


@asynccontextmanager
async def inventory(infrastructure: Infrastructure, **settings: float) -> AsyncIterator[None]:
    service = build(infrastructure, Settings.model_validate({"watch_seconds": 0.1, "retire_seconds": 0, **settings}))
    await service.start()
    try:
        yield
    finally:
        await service.stop()


@pytest.fixture
async def surroundings(servers: Servers) -> Infrastructure:
    return await servers.infrastructure("inventory")


@asynccontextmanager
async def database(infrastructure: Infrastructure) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(infrastructure.postgres_dsn.get_secret_value())
    try:
        yield connection
    finally:
        await connection.close()


def declared(*nodes: str, version: int = 1) -> Envelope:
    return an_envelope(a_cluster(*nodes), key="cluster_demo", version=version)


CLASS = an_envelope(a_class(), key="class_h100")


def drain_fact(fact: DrainRequested | DrainLifted, version: int) -> Envelope:
    return fleet_fact(fact, fact.drain, version)


def grant_fact(fact: GrantIssued | GrantReleased) -> Envelope:
    return an_envelope(fact, key=fact.grant)


def told(line: Wire, node: str) -> list[tuple[str, int]]:
    """Return what was said of a node: kind and version, each fact once."""
    unique = {envelope.id: envelope for envelope in line.heard if envelope.key == a_node_id(node)}
    said = [e for e in unique.values() if e.type.startswith("fleet.node.")]
    return [(type(envelope.data).__name__, envelope.version) for envelope in said]


async def test_a_fleet_is_discovered_marked_and_counted(line: Wire, surroundings: Infrastructure) -> None:
    async with inventory(surroundings):
        await line.say(CLASS, declared("n1", "n2"))
        assert len(await line.wait(NodeDiscovered, 2)) == 2
        assert [fact.name for fact in line.facts(ClusterDiscovered)] == ["demo"]
        await line.say(report_fact(a_report("n1")), report_fact(a_report("n2")))
        await line.wait(NodeChanged, 2)
        await line.say(drain_fact(a_drain("n2"), 1), grant_fact(a_grant("a", a_part("n1", 3))))
        await line.wait(NodeChanged, 3)
        assert line.facts(NodeChanged)[-1].info == an_info("n2", marks=(a_mark(),))
        await eventually(lambda: _numbers(surroundings, Numbers(total=16, allocatable=8, reserved=3, idle=5)))
        await line.say(drain_fact(a_lift("n2"), 2), grant_fact(released(a_grant("a", a_part("n1", 3)))))
        await eventually(lambda: _numbers(surroundings, Numbers(total=16, allocatable=16, reserved=0, idle=16)))
    assert told(line, "n2") == [("NodeDiscovered", 1), ("NodeChanged", 2), ("NodeChanged", 3), ("NodeChanged", 4)]


async def _numbers(infrastructure: Infrastructure, expected: Numbers) -> bool:
    async with database(infrastructure) as connection:
        numbers = count(await store.stocks(connection), by=lambda stock: (stock.cluster, stock.gpu_class))
        assert numbers == {(DEMO, "h100"): expected}
    return True


async def test_messages_said_three_times_to_two_replicas_have_one_effect(
    line: Wire, surroundings: Infrastructure
) -> None:
    async with inventory(surroundings), inventory(surroundings):
        await line.say(CLASS, declared("n1"))
        await line.wait(NodeDiscovered)
        facts = [report_fact(a_report()), drain_fact(a_drain(), 1), drain_fact(a_drain(effect=MarkEffect.DRAIN), 2)]
        for again in ("", ".2", ".3"):
            await line.say(*facts, again=again)
        await line.say(report_fact(a_report("marker")))
        await line.wait(NodeDiscovered, 2)
        drained = an_info(marks=(a_mark(effect=MarkEffect.DRAIN),))
        await eventually(lambda: any(fact.info == drained for fact in line.facts(NodeChanged)))
    facts_told = told(line, "n1")
    assert [version for _, version in facts_told] == list(range(1, len(facts_told) + 1))
    assert [kind for kind, _ in facts_told].count("NodeChanged") <= len(facts), facts_told  # it may fall silent, too


async def test_silence_is_said_once_and_the_next_report_ends_it(line: Wire, surroundings: Infrastructure) -> None:
    async with inventory(surroundings, stale_seconds=1):
        await line.say(CLASS, declared("n1", "n2"))
        await line.wait(NodeDiscovered, 2)
        await line.say(report_fact(a_report("n1")))
        (stale,) = await line.wait(NodeWentStale)
        assert stale.node == a_node_id("n1")
        await line.say(report_fact(a_report("n1", 2)))
        await line.wait(NodeFreshened)
        await line.wait(NodeWentStale, 2)
    assert [kind for kind, _ in told(line, "n1")] == [
        "NodeDiscovered",
        "NodeChanged",
        "NodeWentStale",
        "NodeFreshened",
        "NodeWentStale",
    ]
    assert [kind for kind, _ in told(line, "n2")] == ["NodeDiscovered"]


async def test_silence_counts_only_while_somebody_could_hear(line: Wire, surroundings: Infrastructure) -> None:
    age = "SELECT extract(epoch FROM now() - heard_at)::int FROM nodes WHERE heard_at IS NOT NULL"
    async with database(surroundings) as rows:
        async with inventory(surroundings, stale_seconds=60):
            await line.say(CLASS, declared("n1", "n2"))
            await line.wait(NodeDiscovered, 2)
            await line.say(report_fact(a_report("n1")))
            await eventually(lambda: rows.fetchval("SELECT count(heard_at) = 1 FROM nodes, listened"))
        await rows.execute("UPDATE nodes SET heard_at = heard_at - interval '400 s'")
        await rows.execute("UPDATE listened SET at = at - interval '400 s'")
        assert await rows.fetchval(age) >= 400
        async with inventory(surroundings, stale_seconds=60):
            await eventually(lambda: _below(rows, age, 60))
            assert await rows.fetchval("SELECT count(*) FROM nodes WHERE heard_at IS NULL") == 1, "n2 was never heard"
    assert line.facts(NodeWentStale) == []


async def _below(connection: "asyncpg.Connection[asyncpg.Record]", number: str, limit: int) -> bool:
    return int(await connection.fetchval(number)) < limit


async def test_a_node_left_out_is_retired_when_its_grant_is_over_whatever_restarts(
    line: Wire, surroundings: Infrastructure
) -> None:
    grant = a_grant("a", a_part("n3"))
    async with inventory(surroundings):
        await line.say(CLASS, declared("n1", "n2", "n3"), grant_fact(grant))
        await line.wait(NodeDiscovered, 3)
    await line.say(declared("n1", "n2", version=2))
    async with inventory(surroundings, stale_seconds=1):
        (marked,) = await line.wait(NodeChanged, seconds=45)
        assert [mark.owner for mark in marked.info.marks] == ["inventory"]
        await line.say(report_fact(a_report("n1")), report_fact(a_report("n2")))
        await line.wait(NodeWentStale, 2)  # the watch has been round by now
        assert line.facts(NodeRetired) == []
        await line.say(grant_fact(released(grant)))
        assert [fact.node for fact in await line.wait(NodeRetired)] == [a_node_id("n3")]


async def test_a_mark_heard_before_its_node_is_declared_stands_from_the_first_word(
    line: Wire, surroundings: Infrastructure
) -> None:
    async with inventory(surroundings):
        await line.say(drain_fact(a_drain("n1"), 1), drain_fact(a_drain("n9", "d9"), 1))
        await eventually(lambda: _marks(surroundings, 2))
        await line.say(declared("n1"))
        (found,) = await line.wait(NodeDiscovered)
        assert found.info.marks == (a_mark(),)


async def _marks(infrastructure: Infrastructure, expected: int) -> bool:
    async with database(infrastructure) as connection:
        return bool(await connection.fetchval("SELECT count(*) FROM marks") == expected)


async def test_a_release_heard_before_its_issue_leaves_nothing_behind(line: Wire, surroundings: Infrastructure) -> None:
    grant = a_grant("a", a_part("n1"))
    async with inventory(surroundings):
        await line.say(grant_fact(released(grant)))
        await eventually(lambda: _grants(surroundings, [(grant.grant, False)]))
        await line.say(grant_fact(grant))
        await eventually(lambda: _grants(surroundings, []))


async def _grants(infrastructure: Infrastructure, expected: list[tuple[str, bool]]) -> bool:
    async with database(infrastructure) as connection:
        rows = await connection.fetch("SELECT grant_id, live FROM grants")
    return [tuple(row) for row in rows] == expected


async def test_a_restart_in_the_middle_of_a_stream_of_reports_loses_and_repeats_nothing(
    line: Wire, surroundings: Infrastructure
) -> None:
    nodes = [f"n{number}" for number in range(1, 21)]
    async with inventory(surroundings):
        await line.say(CLASS, declared(*nodes))
        await line.wait(NodeDiscovered, 20)
        await line.say(*(report_fact(a_report(node)) for node in nodes[:10]))
        await line.wait(NodeChanged, 5)
    await line.say(*(report_fact(a_report(node, 2)) for node in nodes))
    async with inventory(surroundings):
        await line.wait(NodeChanged, 20, seconds=45)  # what the first had taken unseen comes again after 30 s
    for node in nodes:
        assert told(line, node) == [("NodeDiscovered", 1), ("NodeChanged", 2)]


async def test_two_replicas_that_hear_classes_clusters_and_reports_at_once_say_each_node_right(
    line: Wire, surroundings: Infrastructure
) -> None:
    async with inventory(surroundings), inventory(surroundings):
        await line.say(
            declared(*(f"n{number}" for number in range(1, 31))),
            *(an_envelope(a_cluster("x1", name=f"c{number}"), key=f"c{number}") for number in range(20)),
            CLASS,
            *(report_fact(a_report(f"n{number}", 1)) for number in range(1, 31)),
        )
        await line.wait(ClusterDiscovered, 21)
        await line.say(*(report_fact(a_report(f"n{number}", 2)) for number in range(1, 31)))
        await eventually(lambda: _classes(surroundings, {"h100"}))
    last = {envelope.key: envelope for envelope in sorted(line.heard, key=lambda e: e.version)}
    infos = [last[a_node_id(f"n{number}")].data for number in range(1, 31)]
    expected = [an_info(f"n{number}") for number in range(1, 31)]
    assert [fact.info for fact in infos if isinstance(fact, NodeDiscovered | NodeChanged)] == expected


async def _classes(infrastructure: Infrastructure, expected: set[str | None]) -> bool:
    async with database(infrastructure) as connection:
        stocks = await store.stocks(connection)
        reported = await connection.fetchval("SELECT count(*) FROM nodes WHERE reported")
    return {stock.gpu_class for stock in stocks} == expected and len(stocks) == 50 and reported == 30


async def test_a_large_cluster_is_one_turn_and_its_heartbeats_say_nothing(
    line: Wire, surroundings: Infrastructure
) -> None:
    nodes = [a_node_spec(f"n{number}") for number in range(LARGE)]
    async with inventory(surroundings):
        await line.say(CLASS)
        await line.say(an_envelope(a_cluster(*nodes), key="cluster_demo"))
        await line.wait(NodeDiscovered, LARGE, seconds=60)
        await line.say(*(report_fact(a_report(f"n{number}", 1)) for number in range(LARGE)))
        await line.say(*(report_fact(a_report(f"n{number}", 2)) for number in range(LARGE)))
        await eventually(lambda: _heard(surroundings, 2), 60)
        await line.wait(NodeChanged, LARGE, seconds=60)
        await line.say(report_fact(a_report("n0", 4, devices=some_devices("n0", 7))))
        await line.wait(NodeChanged, LARGE + 1)
    assert len(line.facts(NodeChanged)) == LARGE + 1
    async with database(surroundings) as connection:
        turns = await connection.fetchval(
            "SELECT count(DISTINCT created_at) FROM outbox WHERE subject LIKE $1", "fleet.node.discovered.%"
        )
    assert turns == 1


async def _heard(infrastructure: Infrastructure, sequence: int) -> bool:
    async with database(infrastructure) as connection:
        return bool(await connection.fetchval("SELECT count(*) FROM nodes WHERE sequence = $1", sequence) == LARGE)
