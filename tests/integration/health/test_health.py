"""Health on real NATS and Postgres: drains and incidents once, whatever is said twice, restarted or answered late."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg
import pytest

from libs.config import Infrastructure
from schemas.base import Envelope
from schemas.fleet import (
    DrainAcknowledged,
    DrainCompleted,
    DrainLifted,
    DrainRequested,
    IncidentCleared,
    IncidentEscalated,
    IncidentOpened,
    Mark,
    MarkEffect,
    Severity,
)
from schemas.ids import DrainId, derive
from schemas.reasons import Code
from schemas.workload import GrantIssued, GrantReleased
from services.health.app import build
from services.health.core import Verb
from services.health.settings import Settings
from tests.support.builders import a_grant, a_node_id, a_part, an_envelope, at, released
from tests.support.builders_fleet import a_report, an_order, changed, discovered, fleet_fact, report_fact
from tests.support.eventually import eventually
from tests.support.servers import Servers
from tests.support.wire import Wire

FIRST = DrainId(derive("drain", a_node_id("n1"), 1))


@asynccontextmanager
async def health(infrastructure: Infrastructure, **settings: float) -> AsyncIterator[None]:
    service = build(infrastructure, Settings.model_validate({"watch_seconds": 0.1, "settle_seconds": 0, **settings}))
    await service.start()
    try:
        yield
    finally:
        await service.stop()


@asynccontextmanager
async def store_of(infrastructure: Infrastructure) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(infrastructure.postgres_dsn.get_secret_value())
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def surroundings(servers: Servers) -> Infrastructure:
    return await servers.infrastructure("health")


def order(verb: Verb, name: str = "o1", *, seconds: float = 0, node: str = "n1") -> Envelope:
    return replace(fleet_fact(an_order(verb, node), f"order_{name}"), time=at(seconds))


def node_fact(node: str = "n1", version: int = 1, effect: MarkEffect | None = None) -> Envelope:
    drain = DrainId(derive("drain", a_node_id(node), 1))
    mark = Mark(drain=drain, effect=effect, owner="o", reason="r", session="s", since=at(0)) if effect else None
    marks = (mark,) if mark else ()
    fact = discovered(node, marks=marks) if version == 1 else changed(node, marks=marks)
    return fleet_fact(fact, a_node_id(node), version)


def grant_fact(fact: GrantIssued | GrantReleased) -> Envelope:
    return an_envelope(fact, key=fact.grant)


async def test_a_drain_goes_from_its_order_to_its_lift(line: Wire, surroundings: Infrastructure) -> None:
    grant = a_grant("a", a_part("n1"))
    async with health(surroundings):
        await line.say(node_fact(), grant_fact(grant), order("drain"))
        (requested,) = await line.wait(DrainRequested)
        assert (requested.drain, requested.effect, requested.owner) == (FIRST, MarkEffect.DRAIN, "ops@x")
        await line.say(node_fact(version=2, effect=MarkEffect.DRAIN))
        await line.wait(DrainAcknowledged)
        assert line.facts(DrainCompleted) == []
        await line.say(grant_fact(released(grant)))
        await line.wait(DrainCompleted)
        await line.say(order("uncordon", "o2", seconds=1))
        await line.wait(DrainLifted)
    assert versions(line, FIRST) == [1, 2, 3, 4]


def versions(line: Wire, key: str) -> list[int]:
    """Return the versions that were said of an entity, each fact once."""
    unique = {envelope.id: envelope.version for envelope in line.heard if envelope.key == key}
    return list(unique.values())


async def test_orders_said_three_times_to_two_replicas_are_one_drain(line: Wire, surroundings: Infrastructure) -> None:
    async with health(surroundings), health(surroundings):
        await line.say(node_fact())
        for again in ("", ".2", ".3"):
            await line.say(order("cordon"), order("drain", "o2", seconds=1), order("cordon", "o3"), again=again)
        await eventually(lambda: any(fact.effect is MarkEffect.DRAIN for fact in line.facts(DrainRequested)))
        await line.say(order("uncordon", "o4", seconds=2))
        await line.wait(DrainLifted)
        await line.say(order("cordon", "marker", node="n2"))
        await eventually(lambda: any(fact.node == a_node_id("n2") for fact in line.facts(DrainRequested)))
    said = versions(line, FIRST)
    assert said == list(range(1, len(said) + 1))
    assert len(said) <= 3


async def test_a_late_old_order_does_not_take_the_node_out_again(line: Wire, surroundings: Infrastructure) -> None:
    async with health(surroundings):
        await line.say(node_fact(), order("uncordon", "o2", seconds=1))
    await line.say(order("drain", "o1", seconds=0), order("cordon", "marker", node="n2"))
    async with health(surroundings):
        assert [fact.node for fact in await line.wait(DrainRequested, seconds=45)] == [a_node_id("n2")]


async def test_a_request_is_said_again_until_the_node_shows_its_mark_and_a_lift_until_it_does_not(
    line: Wire, surroundings: Infrastructure
) -> None:
    def times(kind: type[DrainRequested | DrainLifted]) -> int:
        return sum(isinstance(envelope.data, kind) for envelope in line.heard)

    async with health(surroundings, sweep_seconds=0.2):
        await line.say(node_fact(), order("cordon"))
        await eventually(lambda: times(DrainRequested) >= 3)
        await line.say(node_fact(version=2, effect=MarkEffect.NO_SCHEDULE))
        await line.wait(DrainCompleted)
        await line.say(order("uncordon", "o2", seconds=1))
        await eventually(lambda: times(DrainLifted) >= 3)
    assert (len(line.facts(DrainRequested)), len(line.facts(DrainLifted))) == (1, 1)


async def test_silence_is_opened_escalated_and_cleared_and_a_restart_does_not_begin_anew(
    line: Wire, surroundings: Infrastructure
) -> None:
    async with health(surroundings, stale_seconds=1, lost_seconds=600):
        await line.say(node_fact(), report_fact(a_report()))
        (opened,) = await line.wait(IncidentOpened)
        assert (opened.severity, opened.reason.code) == (Severity.STALE, Code.HEARTBEAT_LOST)
    async with (
        health(surroundings, stale_seconds=1, lost_seconds=2),
        health(surroundings, stale_seconds=1, lost_seconds=2),
    ):
        (worse,) = await line.wait(IncidentEscalated)
        assert (worse.incident, worse.since) == (opened.incident, opened.since)
        await line.say(report_fact(a_report(sequence=2)))
        (cleared,) = await line.wait(IncidentCleared)
        assert cleared.incident == opened.incident
        await line.wait(IncidentOpened, 2)
    assert versions(line, opened.incident) == [1, 2, 3]


@pytest.mark.parametrize("listened", [False, True])
async def test_a_node_is_lost_for_the_time_in_which_it_could_have_been_heard(
    line: Wire, surroundings: Infrastructure, listened: bool
) -> None:
    async with health(surroundings, stale_seconds=60), store_of(surroundings) as rows:
        await line.say(node_fact(), report_fact(a_report()))
        await eventually(lambda: rows.fetchval("SELECT count(heard_at) = 1 FROM nodes, listened"))
    async with store_of(surroundings) as rows:
        await rows.execute("UPDATE nodes SET heard_at = heard_at - interval '400 s'")
        if not listened:
            await rows.execute("UPDATE listened SET at = at - interval '400 s'")
    async with health(surroundings, stale_seconds=2), store_of(surroundings) as rows:
        await line.wait(IncidentOpened)
        assert (len(await line.wait(IncidentEscalated)) == 1) if listened else (line.facts(IncidentEscalated) == [])
        assert await rows.fetchval("SELECT heard_at < now() - interval '300 s' FROM nodes") == listened


async def test_a_fleet_that_falls_silent_opens_incidents_and_escalates_nothing(
    line: Wire, surroundings: Infrastructure
) -> None:
    nodes = [f"n{number}" for number in range(1, 11)]
    async with health(surroundings, stale_seconds=1, lost_seconds=2):
        await line.say(*(node_fact(node) for node in nodes), *(report_fact(a_report(node)) for node in nodes))
        incidents = await line.wait(IncidentOpened, 10)
        assert {incident.reason.code for incident in incidents} == {Code.FLEET_SILENT}
        await line.say(*(report_fact(a_report(node, 2)) for node in nodes[:9]))
        await line.wait(IncidentCleared, 9)
        await line.wait(IncidentOpened, 19)
        assert line.facts(IncidentEscalated) == []


async def test_a_restart_in_the_middle_of_orders_and_reports_loses_and_repeats_nothing(
    line: Wire, surroundings: Infrastructure
) -> None:
    nodes = [f"n{number}" for number in range(1, 41)]
    orders = [order("cordon", f"o{node}", node=node) for node in nodes]
    async with health(surroundings):
        await line.say(*(node_fact(node) for node in nodes))
        await line.say(*orders[:20])
        await line.wait(DrainRequested)
    await line.say(*orders[20:], *(node_fact(node, 2, MarkEffect.NO_SCHEDULE) for node in nodes))
    async with health(surroundings):
        await line.wait(DrainCompleted, 40, seconds=45)  # what the first had taken unseen comes again after 30 s
    assert [len(line.facts(kind)) for kind in (DrainRequested, DrainAcknowledged, DrainCompleted)] == [40, 40, 40]


async def test_a_release_heard_before_its_issue_holds_no_drain_up(line: Wire, surroundings: Infrastructure) -> None:
    grant = a_grant("a", a_part("n1"))
    async with health(surroundings):
        await line.say(node_fact(), grant_fact(released(grant)), order("drain"))
        await line.wait(DrainRequested)
        await line.say(grant_fact(grant), order("cordon", "marker", node="n2"))
        await line.wait(DrainRequested, 2)
        await line.say(node_fact(version=2, effect=MarkEffect.DRAIN))
        assert [fact.node for fact in await line.wait(DrainCompleted)] == [a_node_id("n1")]
