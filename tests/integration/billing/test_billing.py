"""Billing on real NATS and Postgres: every device's time once, whatever is said twice, late or reversed."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from libs.config import Infrastructure
from libs.pg.pool import Connection, connect
from schemas.base import Envelope
from schemas.ledger import UsageRated
from schemas.reasons import Code
from services.billing import store
from services.billing.app import build
from services.billing.core import View, decide, evolve
from services.billing.settings import Settings
from tests.support.builders import a_grant, a_part, an_envelope, at, released, revoked
from tests.support.builders_billing import a_class, a_price, a_stretch, orders, said
from tests.support.eventually import eventually
from tests.support.servers import Servers
from tests.support.wire import Wire

SHAPES = [a_price(), *a_stretch("a", 0, 30, devices=4), *a_stretch("b", 35, 55), *a_stretch("c", 55, 75, node="n2")]


@asynccontextmanager
async def billing(infrastructure: Infrastructure) -> AsyncIterator[None]:
    service = build(infrastructure, Settings(settle_seconds=0.2, rate_seconds=0.1))
    await service.start()
    try:
        yield
    finally:
        await service.stop()


@pytest.fixture
async def surroundings(servers: Servers) -> Infrastructure:
    return await servers.infrastructure("billing")


@pytest.fixture
async def connection(surroundings: Infrastructure) -> AsyncIterator[Connection]:
    opened = await connect(surroundings.postgres_dsn.get_secret_value(), schema="billing")
    yield opened
    await opened.close()


def expected(facts: list[Envelope]) -> list[UsageRated]:
    view = View()
    for fact in facts:
        view = evolve(view, fact)
    return sorted(decide(view), key=lambda usage: usage.usage)


async def test_a_released_part_is_rated_once(surroundings: Infrastructure, line: Wire) -> None:
    facts = [a_price(price="2.50 USD"), *a_stretch("train", 0, 30)]
    async with billing(surroundings):
        await line.say(*facts)
        assert await line.wait(UsageRated) == expected(facts)


@pytest.mark.parametrize("order", range(4), ids=["in order", "twice", "reversed", "reversed and twice"])
async def test_the_order_of_the_facts_makes_no_difference(
    surroundings: Infrastructure, line: Wire, connection: Connection, order: int
) -> None:
    async with billing(surroundings):
        for number, fact in enumerate(orders(SHAPES)[order]):
            await line.say(fact, again=f".{number}")
        assert sorted(await line.wait(UsageRated, 3), key=lambda usage: usage.usage) == expected(SHAPES)
    assert await connection.fetchval("SELECT sum(amount_micros)::bigint FROM lines") == 5_333_334


async def test_the_end_said_again_after_a_restart_opens_nothing(surroundings: Infrastructure, line: Wire) -> None:
    facts = [a_price(), *a_stretch("train", -10, 125, devices=2)]
    async with billing(surroundings):
        await line.say(*facts)
        await line.wait(UsageRated)
    async with billing(surroundings):
        later = a_stretch("later", 130, 140)
        await line.say(*facts, again=".again")
        await line.say(*later)
        await line.wait(UsageRated, 2)
    assert sorted(line.facts(UsageRated), key=lambda usage: usage.usage) == expected([*facts, *later])


async def test_a_part_waits_for_its_price(surroundings: Infrastructure, line: Wire, connection: Connection) -> None:
    facts = a_stretch("train", 0, 60)
    async with billing(surroundings):
        await line.say(*facts)
        await eventually(lambda: connection.fetchval("SELECT count(*) FROM parts WHERE released_at IS NOT NULL"))
        assert line.facts(UsageRated) == []
        await line.say(a_price())
        assert await line.wait(UsageRated) == expected([a_price(), *facts])


async def test_a_class_that_cannot_be_read_stops_nothing(surroundings: Infrastructure, line: Wire) -> None:
    broken = a_class("odd").model_copy(update={"document": {"kind": "GpuClass"}})
    facts = [a_price(), *a_stretch("train", 0, 60)]
    async with billing(surroundings):
        await line.say(an_envelope(broken, key="class_odd"), *facts)
        assert await line.wait(UsageRated) == expected(facts)


async def test_a_device_granted_twice_at_one_time_is_billed_once_and_disputed(
    surroundings: Infrastructure, line: Wire, connection: Connection
) -> None:
    first, second, third = a_stretch("first", 0, 60, devices=2), a_stretch("second", 59, 90), a_stretch("third", 90, 99)
    async with billing(surroundings):
        await line.say(a_price(), *first)
        await line.wait(UsageRated)
        await line.say(*second)
        await eventually(lambda: connection.fetchval("SELECT count(*) FROM parts WHERE state = 'disputed'"))
        await line.say(*third)
        await line.wait(UsageRated, 2)
    assert [usage.grant for usage in line.facts(UsageRated)] == [first[0].key, third[0].key]


async def test_the_database_refuses_two_lines_over_one_time_of_a_device(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO parts (grant_id, node, job, attempt, tenant) SELECT g, 'n1', '', 1, '' FROM unnest($1::text[]) g",
        ["a", "b", "c", "d"],
    )
    insert = "INSERT INTO lines VALUES ($1, 'acme', $1, 'n1', $2, $3, $4, 'USD', 1, 1)"
    await connection.execute(insert, "a", "dev_1", at(0), at(60))
    await connection.execute(insert, "b", "dev_1", at(60), at(90))
    await connection.execute(insert, "c", "dev_2", at(0), at(90))
    with pytest.raises(asyncpg.ExclusionViolationError, match="billed_once"):
        await connection.execute(insert, "d", "dev_1", at(59), at(60))
    with pytest.raises(asyncpg.ExclusionViolationError, match="billed_once"):
        await connection.execute(insert, "d", "dev_1", at(60) - timedelta(microseconds=1), at(60))
    await connection.execute(insert, "d", "dev_1", at(30), at(30))  # no time at all


@pytest.mark.parametrize("seed", range(12))
async def test_rows_remember_what_the_view_in_memory_does(connection: Connection, seed: int) -> None:
    dice = random.Random(seed)
    gang = a_grant("gang", a_part("n3", 2), a_part("n4", 2, rank=1), issued=at(0))
    lost = revoked(gang, Code.NODE_LOST, when=at(60))
    facts = [
        *SHAPES,
        a_price(price="3.00 USD", generation=2, minute=50),
        *said(gang, released(gang, 1, remaining=1, when=at(99)), revocation=lost),
    ]
    heard = [dice.choice(facts) for _ in range(dice.randrange(1, 30))]
    view, cut = View(), dice.randrange(len(heard) + 1)
    for batch in (heard[:cut], heard[cut:]):
        news = View()
        for fact in batch:
            view, news = evolve(view, fact), evolve(news, fact)
        await store.note(connection, news)
    kept = await store.settled(connection, settle_seconds=0, limit=100)
    priced = any(price.generation == 1 for price in view.prices.get("h100", ()))
    assert kept.parts == {key: part for key, part in view.parts.items() if part.whole and priced}
    assert list(decide(kept)) == list(decide(view))
