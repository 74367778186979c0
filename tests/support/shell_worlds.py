"""Two worlds for the same tests of the shell: real NATS with Postgres, and the memory twin."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats.js.errors
from nats.aio.client import Client

from deploy.embedded import wiring
from deploy.embedded.servers.roles import role_of
from libs.bus.memory import MemoryBus, MemoryServer
from libs.bus.memory_store import MemoryStore, MemoryTurn
from libs.bus.steady import connected
from libs.bus.turn import Turn
from libs.clock import SystemClock
from libs.config import Infrastructure
from libs.pg.outbox import ASKS
from libs.service import Service
from schemas import codec
from schemas.base import Envelope
from tests.support.eventually import eventually
from tests.support.servers import Servers

REVISIONS = Path(__file__).parent / "shell_revisions"


@dataclass(frozen=True)
class Heard:
    """A message as it is stored on a stream."""

    subject: str
    body: bytes
    headers: dict[str, str]

    @property
    def envelope(self) -> Envelope:
        """The fact in it."""
        return codec.decode(self.body)


class World(ABC):
    """What a test of the shell does to its surroundings."""

    name: str

    @abstractmethod
    def service(self, name: str, **options: Any) -> Service:
        """Make a service that is not started."""

    @abstractmethod
    async def effect(self, turn: Turn, what: str) -> None:
        """Change something in the turn."""

    @abstractmethod
    async def effects(self, service: str) -> list[str]:
        """Return the committed changes, in order."""

    @abstractmethod
    async def say_raw(self, stream: str, subject: str, body: bytes, identity: str, *, asks: bool = False) -> None:
        """Store bytes on a stream under a message id; ``asks``: as one who misses the answer."""

    @abstractmethod
    async def stored(self, stream: str) -> list[Heard]:
        """Return what a stream holds."""

    @abstractmethod
    async def delete_stream(self, name: str) -> None:
        """Lose a stream."""

    @abstractmethod
    async def delete_durable(self, stream: str, name: str) -> None:
        """Lose a durable."""

    @abstractmethod
    async def delete_last(self, stream: str, count: int) -> None:
        """Lose the last messages of a stream."""

    @abstractmethod
    async def in_hand(self, stream: str, durable: str) -> int:
        """Return how many messages a durable has delivered and not heard of."""

    @abstractmethod
    async def bus_away(self) -> None:
        """Take the message server away, as a crash would."""

    @abstractmethod
    async def bus_back(self) -> None:
        """Bring the message server back with its data."""

    @abstractmethod
    async def store_away(self) -> None:
        """Take the store away, as a crash would."""

    @abstractmethod
    async def store_back(self) -> None:
        """Bring the store back with its data."""

    async def say(self, *envelopes: Envelope, time: int = 1) -> None:
        """Say facts in anybody's name, for the time-th time: from the second on as one who misses the answer."""
        for envelope in envelopes:
            stream, subject = envelope.type.partition(".")[0].upper(), codec.subject_of(envelope)
            await self.say_raw(stream, subject, codec.encode(envelope), f"{envelope.id}.{time}", asks=time > 1)

    async def kinds(self, stream: str) -> list[str]:
        """Return type and key of what a stream holds, in order."""
        return [f"{heard.envelope.type} {heard.envelope.key}" for heard in await self.stored(stream)]

    @asynccontextmanager
    async def running(self, *services: Service) -> AsyncIterator[None]:
        """Run services in the block."""
        for service in services:
            await service.start()
        try:
            yield
        finally:
            await asyncio.gather(*(service.stop() for service in services))


@dataclass
class RealWorld(World):
    """Real servers, with the rights that production gives."""

    servers: Servers
    surroundings: dict[str, Infrastructure]
    operator: Client
    name: str = "real"

    def service(self, name: str, **options: Any) -> Service:
        return Service(name, self.surroundings[name], versions=REVISIONS, **options)

    async def effect(self, turn: Turn, what: str) -> None:
        await turn.connection.execute("INSERT INTO effects (what) VALUES ($1)", what)

    async def effects(self, service: str) -> list[str]:
        connection = await self.servers.foundation.postgres.connect()
        try:
            await connection.execute("SELECT set_config('search_path', $1, false)", service)
            rows = await connection.fetch("SELECT what FROM effects ORDER BY place")
        finally:
            await connection.close()
        return [row["what"] for row in rows]

    async def say_raw(self, stream: str, subject: str, body: bytes, identity: str, *, asks: bool = False) -> None:
        headers = {"Nats-Msg-Id": identity, **({ASKS: ""} if asks else {})}
        await self.operator.jetstream().publish(subject, body, stream=stream, headers=headers)

    async def stored(self, stream: str) -> list[Heard]:
        jetstream = self.operator.jetstream()
        try:
            state = (await jetstream.stream_info(stream)).state
        except nats.js.errors.NotFoundError:
            return []
        found = []
        for sequence in range(max(1, state.first_seq), state.last_seq + 1):
            with suppress(nats.js.errors.NotFoundError):
                raw = await jetstream.get_msg(stream, sequence)
                found.append(Heard(raw.subject or "", raw.data or b"", raw.headers or {}))
        return found

    async def delete_stream(self, name: str) -> None:
        await self.operator.jetstream().delete_stream(name)

    async def delete_durable(self, stream: str, name: str) -> None:
        await self.operator.jetstream().delete_consumer(stream, name)

    async def delete_last(self, stream: str, count: int) -> None:
        jetstream = self.operator.jetstream()
        last = (await jetstream.stream_info(stream)).state.last_seq
        for sequence in range(last - count + 1, last + 1):
            await jetstream.delete_msg(stream, sequence)

    async def in_hand(self, stream: str, durable: str) -> int:
        return (await self.operator.jetstream().consumer_info(stream, durable)).num_ack_pending or 0

    async def bus_away(self) -> None:
        self.servers.kill("nats")

    async def bus_back(self) -> None:
        await self.servers.start("nats")
        await eventually(lambda: self.operator.is_connected)

    async def store_away(self) -> None:
        self.servers.kill("postgres")

    async def store_back(self) -> None:
        await self.servers.start("postgres")


@dataclass
class MemoryWorld(World):
    """The memory twin."""

    server: MemoryServer = field(default_factory=lambda: MemoryServer(SystemClock(), ack_wait_seconds=1.0))
    stores: dict[str, MemoryStore] = field(default_factory=dict)
    name: str = "memory"

    def service(self, name: str, **options: Any) -> Service:
        quiet = min(5.0, options.get("sweep_seconds", 60.0) / 2)
        options.pop("ack_wait_seconds", None)
        store = self.stores.setdefault(name, MemoryStore(name, SystemClock(), quiet_seconds=quiet))
        return Service(name, Infrastructure(), bus=MemoryBus(self.server), store=store, **options)

    async def effect(self, turn: Turn, what: str) -> None:
        assert isinstance(turn, MemoryTurn)
        turn.state["effects"] = (*self._effects(turn.state), what)

    async def effects(self, service: str) -> list[str]:
        return list(self._effects(self.stores[service].tables.state))

    async def say_raw(self, stream: str, subject: str, body: bytes, identity: str, *, asks: bool = False) -> None:
        self.server.declare([])
        self.server.store_raw(stream, subject, body, {ASKS: ""} if asks else {}, identity)

    async def stored(self, stream: str) -> list[Heard]:
        found = self.server.streams.get(stream)
        rows = sorted(found.messages.values(), key=lambda each: each.sequence) if found else []
        return [Heard(row.subject, row.body, dict(row.headers)) for row in rows]

    async def delete_stream(self, name: str) -> None:
        self.server.delete_stream(name)

    async def delete_durable(self, stream: str, name: str) -> None:
        assert self.server.durables.pop(name).spec.stream == stream

    async def delete_last(self, stream: str, count: int) -> None:
        messages = self.server.streams[stream].messages
        for sequence in sorted(messages)[-count:]:
            del messages[sequence]

    async def in_hand(self, stream: str, durable: str) -> int:
        found = self.server.durables[durable]
        assert found.spec.stream == stream
        return len(found.pending) + len(found.again)

    async def bus_away(self) -> None:
        self.server.set_up(up=False)

    async def bus_back(self) -> None:
        self.server.set_up(up=True)

    async def store_away(self) -> None:
        for store in self.stores.values():
            store.up = False

    async def store_back(self) -> None:
        for store in self.stores.values():
            store.up = True

    @staticmethod
    def _effects(state: dict[str, object]) -> tuple[str, ...]:
        known = state.get("effects", ())
        assert isinstance(known, tuple)
        return known


@asynccontextmanager
async def real_world(servers: Servers, services: Sequence[str]) -> AsyncIterator[RealWorld]:
    """Open a real world in which these services have the shell's tables only."""
    await _fresh_schemas(servers, services)
    surroundings = {name: wiring.infrastructure(servers.foundation, name) for name in services}
    operator = await connected(**servers.operator_nats, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
    try:
        yield RealWorld(servers, surroundings, operator)
    finally:
        await operator.close()
        await _fresh_schemas(servers, services)
        servers.migrated.difference_update(services)


async def _fresh_schemas(servers: Servers, services: Sequence[str]) -> None:
    connection = await servers.foundation.postgres.connect()
    try:
        for service in services:
            await connection.execute(f"DROP SCHEMA IF EXISTS {service} CASCADE")
            await connection.execute(f"CREATE SCHEMA {service} AUTHORIZATION {role_of(service)}")
    finally:
        await connection.close()
