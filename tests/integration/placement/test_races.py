"""S24 and S46, and rules L3 to L5: races between replicas, and Redis wiped, away, or ahead of the ledger."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from redis.asyncio import Redis

from libs.config import Infrastructure
from libs.leases import Lease, Leases
from schemas.base import Envelope
from schemas.reasons import Code
from schemas.workload import GrantIssued, GrantReleased
from tests.support.eventually import eventually
from tests.support.placements import (
    admitted,
    agents,
    cancelled,
    claim,
    ledger,
    placement,
    refusal,
    run_ended,
    say_fleet,
)
from tests.support.servers import Servers
from tests.support.wire import Wire

NODES = [f"n{number:02}" for number in range(20)]
HELD = "SELECT l.device, g.id, g.epoch FROM lines l JOIN grants g ON g.id = l.grant_id WHERE l.live"
UNSEEN_HOLD = """
INSERT INTO lines (kind, node, device, span)
SELECT 'hold', node, device, whole(ordinal)
FROM devices WHERE device = $1
"""
WAITS_FOR_US = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
LIVE = "SELECT device FROM lines WHERE live"
EPOCHS = """
SELECT l.device, array_agg(g.epoch ORDER BY l.id) AS epochs
FROM lines l JOIN grants g ON g.id = l.grant_id GROUP BY l.device
"""


@pytest.fixture
async def redis(servers: Servers) -> AsyncIterator[Redis]:
    async with Redis.from_url(servers.operator_redis_url, decode_responses=True) as server:
        yield server


@pytest.fixture
async def leases(surroundings: Infrastructure) -> AsyncIterator[Leases]:
    client = Leases(surroundings.redis_url.get_secret_value())
    yield client
    await client.close()


def burst(first: int, count: int) -> list[Envelope]:
    return [admitted(f"job-{number}", after=number) for number in range(first, first + count)]


async def live_devices(rows: "asyncpg.Connection[asyncpg.Record]") -> list[str]:
    return [row["device"] for row in await rows.fetch(LIVE)]


async def check_epochs_rise(rows: "asyncpg.Connection[asyncpg.Record]") -> None:
    for row in await rows.fetch(EPOCHS):
        assert row["epochs"] == sorted(set(row["epochs"])), row


async def test_s24_a_burst_over_four_replicas_gives_each_device_to_one_attempt(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, *NODES)
    async with placement(surroundings, replicas=4), ledger(surroundings) as rows:
        await eventually(lambda: rows.fetchval("SELECT count(*) = 160 FROM devices"))
        await line.say(*burst(0, 200))
        await line.wait(GrantIssued, 160, seconds=30)
        assert await rows.fetchval("SELECT count(*) FROM attempts WHERE state = 'Pending'") == 40
        devices = await live_devices(rows)
        assert (len(devices), len(set(devices))) == (160, 160)
        gone = [fact.name for fact in line.facts(GrantIssued)[:50]]
        await asyncio.gather(*(line.say(cancelled(name), *burst(200 + n, 1)) for n, name in enumerate(gone)))
        await line.wait(GrantIssued, 210, seconds=30)
        await eventually(lambda: rows.fetchval("SELECT count(*) = 40 FROM attempts WHERE state = 'Pending'"))
        devices = await live_devices(rows)
        assert (len(devices), len(set(devices))) == (160, 160)
        await check_epochs_rise(rows)


async def test_s46_redis_wiped_again_and_again_gives_no_device_twice_and_comes_back(
    surroundings: Infrastructure, line: Wire, redis: Redis, leases: Leases
) -> None:
    await say_fleet(line, *NODES[:5])
    async with placement(surroundings, replicas=2), ledger(surroundings) as rows:
        for round_ in range(4):
            await line.say(*burst(10 * round_, 10))
            await redis.flushall()
            await line.wait(GrantIssued, 10 * (round_ + 1), seconds=60)
            await redis.flushall()
        ended = line.facts(GrantIssued)[:20]
        await line.say(*(cancelled(fact.name) for fact in ended), *burst(40, 20))
        await redis.flushall()
        await line.wait(GrantIssued, 60, seconds=60)
        devices = await live_devices(rows)
        assert (len(devices), len(set(devices))) == (40, 40)
        await check_epochs_rise(rows)
        live = await rows.fetch(HELD)
        expected = [Lease(row["device"], row["id"], row["epoch"]) for row in live]

        async def rebuilt() -> bool:
            return await leases.verify(expected) == ()

        await eventually(rebuilt)


async def test_l1_l3_with_redis_away_grants_go_on_and_the_ledger_decides(
    surroundings: Infrastructure, line: Wire, servers: Servers
) -> None:
    await say_fleet(line, *NODES[:2])
    await servers.stop("redis")
    async with placement(surroundings, replicas=2), ledger(surroundings) as rows:
        await line.say(*burst(0, 20))
        await line.wait(GrantIssued, 16, seconds=30)
        devices = await live_devices(rows)
        assert (len(devices), len(set(devices))) == (16, 16)
        await servers.start("redis")


async def test_l3_a_device_that_is_free_in_the_ledger_but_leased_is_a_lost_race_until_the_lease_is_gone(
    surroundings: Infrastructure, line: Wire, redis: Redis, leases: Leases
) -> None:
    await say_fleet(line, "n1", devices=1)
    async with placement(surroundings), ledger(surroundings) as rows:
        device = await eventually(lambda: rows.fetchval("SELECT device FROM devices"))
        await leases.acquire_many({"someone else": [device]})
        await line.say(admitted("train"))
        await eventually(lambda: rows.fetchval("SELECT count(*) FROM attempts WHERE state = 'Pending'"))
        assert line.facts(GrantIssued) == []
        await redis.delete(f"dev:{device}")
        (issued,) = await line.wait(GrantIssued)
        lease = Lease(device, issued.grant, issued.epoch)
        await eventually(lambda: raised(leases, lease))


async def raised(leases: Leases, lease: Lease) -> bool:
    return await leases.verify([lease]) == ()


@pytest.mark.usefixtures("standing")
async def test_l2_the_lease_goes_with_the_release(surroundings: Infrastructure, line: Wire, redis: Redis) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings):
        await line.say(admitted("train", 8))
        (issued,) = await line.wait(GrantIssued)
        await eventually(redis.dbsize)
        assert (await claim(line, issued)).granted
        await line.say(run_ended(issued))
        await line.wait(GrantReleased)

        async def gone() -> bool:
            return int(await redis.dbsize()) == 0

        await eventually(gone)


async def test_l5_a_lease_above_the_ledger_stops_new_grants_until_a_person_lifts_the_stop(
    surroundings: Infrastructure, line: Wire, leases: Leases
) -> None:
    await say_fleet(line, "n1")
    async with agents(line), placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("before"))
        (issued,) = await line.wait(GrantIssued)
        device = issued.parts[0].devices[0].device
        await leases.raise_many([Lease(device, "grant_of_a_lost_commit", issued.epoch + 7)])
        await eventually(lambda: rows.fetchval("SELECT count(*) FROM stops"))
        await line.say(admitted("after"))
        await eventually(lambda: rows.fetchval("SELECT count(*) FROM attempts WHERE state = 'Pending'"))
        stops = await rows.fetch("SELECT device, lease_epoch, ledger_epoch FROM stops")
        assert [tuple(stop) for stop in stops] == [(device, issued.epoch + 7, issued.epoch)]
        assert len(line.facts(GrantIssued)) == 1
        assert not (await refusal(line, Code.LEDGER_BEHIND)).final
        assert (await claim(line, issued)).granted
        await leases.release_many([Lease(device, "grant_of_a_lost_commit", issued.epoch + 7)])
        await rows.execute("UPDATE stops SET lifted_at = now(), lifted_by = 'ada'")
        await line.wait(GrantIssued, 2)


async def test_r1_a_gang_that_the_constraint_refuses_loses_alone_and_is_placed_elsewhere(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=4)
    async with placement(surroundings), ledger(surroundings) as rows:
        await eventually(lambda: rows.fetchval("SELECT count(*) = 4 FROM devices"))
        async with rows.transaction():
            first = await rows.fetchval("SELECT device FROM devices WHERE index = 0")
            await rows.execute(UNSEEN_HOLD, first)
            await line.say(admitted("a"), admitted("b", after=1))
            await eventually(lambda: rows.fetchval(WAITS_FOR_US))
        issued = await line.wait(GrantIssued, 2)
        assert {part.devices[0].device for fact in issued for part in fact.parts}.isdisjoint({first})


async def test_l3_a_transaction_that_fails_gives_its_pending_leases_back(
    surroundings: Infrastructure, line: Wire, redis: Redis
) -> None:
    await say_fleet(line, "n1", devices=1)
    async with placement(surroundings), ledger(surroundings) as rows:
        await eventually(lambda: rows.fetchval("SELECT count(*) = 1 FROM devices"))
        async with rows.transaction():
            await rows.execute("LOCK TABLE grants IN EXCLUSIVE MODE")
            await line.say(admitted("train"))
            await eventually(redis.dbsize)

            async def given_back() -> bool:
                return int(await redis.dbsize()) == 0

            await eventually(given_back)  # the wall waits five seconds for the lock
        await line.wait(GrantIssued)
