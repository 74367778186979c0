"""Real NATS, Redis and Postgres for one test session, run by the code that runs them in production."""

from dataclasses import dataclass, field
from importlib import util
from pathlib import Path

from redis.asyncio import Redis

from deploy.embedded import ports, wiring
from deploy.embedded.credentials import OPERATOR
from deploy.embedded.foundation import Foundation, lay
from deploy.embedded.servers import SERVERS
from deploy.embedded.settings import Settings
from deploy.embedded.state import open_state
from libs.bus.steady import connected
from libs.config import Infrastructure
from libs.pg import migrate

OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename <> $1"
# deleting a few rows costs no new files, as truncating a hundred tables does: tests and the last checkpoint stay quick
EMPTY = """
DO $$
DECLARE place record;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR place IN SELECT schemaname, tablename FROM pg_tables
        WHERE schemaname NOT IN ('pg_catalog', 'information_schema') AND tablename <> 'alembic_version'
        AND pg_relation_size(format('%I.%I', schemaname, tablename)::regclass) > 0
    LOOP EXECUTE format('DELETE FROM %I.%I', place.schemaname, place.tablename); END LOOP;
    FOR place IN SELECT schemaname, sequencename FROM pg_sequences WHERE last_value IS NOT NULL
    LOOP PERFORM setval(format('%I.%I', place.schemaname, place.sequencename), 1, false); END LOOP;
END $$
"""


@dataclass(frozen=True)
class Servers:
    """The three servers. Names are "nats", "redis", "postgres"; ports stay through every kill and start."""

    foundation: Foundation
    migrated: set[str] = field(default_factory=set)

    async def infrastructure(self, service: str) -> Infrastructure:
        """Return what the service is told in production; its schema is migrated once a session."""
        surroundings = wiring.infrastructure(self.foundation, service)
        if service not in self.migrated and util.find_spec(f"services.{service}.migrations"):
            await migrate.upgrade(surroundings.postgres_dsn.get_secret_value(), service)
        self.migrated.add(service)
        return surroundings

    async def wipe(self) -> None:
        """Empty all: rows of all services, streams with their durables, leases. A dead server is started first."""
        if not all(keeper.is_alive for keeper in self.foundation.keepers.values()):
            await self.foundation.start()
        await self._wipe_postgres()
        await self._wipe_nats()
        async with Redis.from_url(self.operator_redis_url) as redis:
            await redis.flushall()

    def kill(self, name: str) -> None:
        """End a server as a crash would (SIGKILL)."""
        self.foundation.keepers[name].kill()

    async def stop(self, name: str) -> None:
        """End a server in good order."""
        await self.foundation.keepers[name].stop()

    async def start(self, name: str) -> None:
        """Start a server again, with its data, on the same port; returns when it answers."""
        await self.foundation.keepers[name].start()

    @property
    def nats_url(self) -> str:
        """Where NATS is; see `infrastructure` for users."""
        return f"nats://127.0.0.1:{self.foundation.nats.port}"

    @property
    def operator_nats(self) -> dict[str, str]:
        """Arguments for `nats.connect` as the user who may do everything."""
        return {"servers": self.nats_url, "user": OPERATOR, "password": self.foundation.credentials.nats[OPERATOR]}

    @property
    def operator_redis_url(self) -> str:
        """Redis as the user who may do everything."""
        return wiring.redis_url(self.foundation, OPERATOR)

    async def _wipe_postgres(self) -> None:
        connection = await self.foundation.postgres.connect()
        try:
            await connection.execute("SET lock_timeout = '10s'")
            await connection.fetch(OTHERS, OPERATOR)
            await connection.execute(EMPTY)
        finally:
            await connection.close()

    async def _wipe_nats(self) -> None:
        connection = await connected(**self.operator_nats)
        jetstream = connection.jetstream()
        for stream in await jetstream.streams_info():
            await jetstream.delete_stream(stream.config.name or "")
        await connection.close()


def lay_servers(root: Path) -> Servers:
    """Prepare three servers with their state in `root`; `foundation.start()` starts them."""
    folder = open_state(root)
    return Servers(lay(folder, Settings(), ports.settle(folder, SERVERS, {})))
