"""The fixtures other integration tests stand on."""

from collections.abc import Awaitable, Callable

import asyncpg
import pytest
from redis.asyncio import Redis

from libs.bus.steady import connected
from libs.config import Infrastructure
from tests.support.servers import Servers

Surroundings = Callable[[str], Awaitable[Infrastructure]]


@pytest.fixture(params=["first", "second"])
def round_of(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_each_test_finds_the_servers_empty(servers: Servers, round_of: str) -> None:
    connection = await servers.foundation.postgres.connect()
    await connection.execute("SET ROLE triplane_audit")
    await connection.execute("CREATE TABLE IF NOT EXISTS audit.left (round text)")
    jetstream = (bus := await connected(**servers.operator_nats)).jetstream()
    async with Redis.from_url(servers.operator_redis_url) as redis:
        seen = (
            await connection.fetchval("SELECT count(*) FROM audit.left"),
            [stream.config.name for stream in await jetstream.streams_info()],
            await redis.dbsize(),
        )
        await redis.set("dev:left", round_of)
    await connection.execute("INSERT INTO audit.left VALUES ($1)", round_of)
    await jetstream.add_stream(name="LEFT", subjects=["left.>"])
    await bus.close()
    await connection.close()
    assert seen == (0, [], 0)


async def test_a_service_sees_its_own_schema_and_no_other(infrastructure: Surroundings) -> None:
    connection = await asyncpg.connect((await infrastructure("billing")).postgres_dsn.get_secret_value())
    await connection.execute("CREATE TABLE IF NOT EXISTS mine (id int)")
    schema = await connection.fetchval("SELECT schemaname FROM pg_tables WHERE tablename = 'mine'")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("CREATE TABLE audit.theirs (id int)")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("CREATE TABLE public.everybodys (id int)")
    await connection.close()
    assert schema == "billing"


@pytest.mark.parametrize("server", ["nats", "redis", "postgres"])
async def test_a_killed_server_is_back_for_the_next_test_on_its_port(servers: Servers, server: str) -> None:
    port = servers.foundation.keepers[server].server.port
    servers.kill(server)
    assert not await servers.foundation.keepers[server].server.answers()
    await servers.start(server)
    assert servers.foundation.keepers[server].server.port == port
    assert await servers.foundation.keepers[server].server.answers()
