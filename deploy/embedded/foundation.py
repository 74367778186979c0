"""NATS, Redis and Postgres as one: started together, kept alive together, stopped together."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from deploy.embedded import binaries, credentials
from deploy.embedded.credentials import Credentials
from deploy.embedded.keeper import Keeper
from deploy.embedded.servers.identity import own_identity
from deploy.embedded.servers.nats import NatsServer
from deploy.embedded.servers.postgres import PostgresServer
from deploy.embedded.servers.redis import RedisServer
from deploy.embedded.settings import Settings
from deploy.embedded.state import StateFolder
from schemas.permissions import all_permissions


@dataclass(frozen=True, slots=True)
class Foundation:
    """The three servers of one state directory."""

    folder: StateFolder
    credentials: Credentials
    nats: NatsServer
    redis: RedisServer
    postgres: PostgresServer
    keepers: Mapping[str, Keeper]

    async def start(self) -> None:
        """Start all three and wait until they answer. Raises StackError; then none is left running."""
        try:
            async with asyncio.TaskGroup() as starts:
                for keeper in self.keepers.values():
                    starts.create_task(keeper.start())
        except BaseExceptionGroup as failures:
            await self.stop()
            raise failures.exceptions[0] from None

    async def keep(self) -> None:
        """Bring back whatever dies, for ever. Raises StackError when one dies too often in a row."""
        try:
            async with asyncio.TaskGroup() as watches:
                for keeper in self.keepers.values():
                    watches.create_task(keeper.keep())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def stop(self) -> None:
        """End all three; the ledger's data is safe on disk afterwards."""
        await asyncio.gather(*(keeper.stop() for keeper in self.keepers.values()))


def lay(folder: StateFolder, settings: Settings, chosen: Mapping[str, int]) -> Foundation:
    """Find passwords and programs for servers on these ports; starts nothing. Raises StackError."""
    secret = credentials.kept_or_new(folder)
    nats = NatsServer(folder, chosen["nats"], secret, binaries.nats_server(), all_permissions())
    redis = RedisServer(folder, chosen["redis"], secret, binaries.redis_server(settings.prefer_redis_on_path))
    postgres = PostgresServer(folder, chosen["postgres"], secret, own_identity())
    keepers = {server.name: Keeper(folder, server) for server in (nats, redis, postgres)}
    return Foundation(folder, secret, nats, redis, postgres, keepers)
