"""A whole stack in processes of its own, of which any part can be killed while jobs go through it."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from deploy.embedded import children, ports
from deploy.embedded.files import open_log
from deploy.embedded.foundation import lay
from deploy.embedded.gateway import access_of, address_of
from deploy.embedded.ports import HEALTH
from deploy.embedded.readiness import is_ready
from deploy.embedded.runtime import remove_runtime_folder
from deploy.embedded.servers import SERVERS
from deploy.embedded.settings import Settings
from deploy.embedded.state import StateFolder, holder, open_state
from libs.bus.steady import connected
from libs.client.config import Access
from libs.leases import Leases
from libs.pg.pool import Connection
from tests.support.eventually import eventually
from tests.support.invariants import breaches
from tests.support.servers import Servers
from tests.support.stacks import NOWHERE, READY_SECONDS
from tests.support.work_log import Process, WorkLog

BACK_SECONDS = 60
STOP_SECONDS = 90
# every wait of production, shortened alike: three beats make silence, three renewals a lease, and nothing is lost early
SHORT = {
    "TRIPLANE_ACK_WAIT_SECONDS": "2",
    "TRIPLANE_GATEWAY_SWEEP_SECONDS": "2",
    "TRIPLANE_ADMISSION_SWEEP_SECONDS": "2",
    "TRIPLANE_ADMISSION_CLOCK_SECONDS": "0.5",
    "TRIPLANE_PLACEMENT_LEASE_SECONDS": "3",
    "TRIPLANE_PLACEMENT_RENEW_SECONDS": "1",
    "TRIPLANE_PLACEMENT_PENDING_LEASE_SECONDS": "2",
    "TRIPLANE_PLACEMENT_SUSPECT_AFTER_SECONDS": "4",
    "TRIPLANE_PLACEMENT_NODE_LOST_AFTER_SECONDS": "90",
    "TRIPLANE_PLACEMENT_CLUSTER_LOST_AFTER_SECONDS": "120",
    "TRIPLANE_PLACEMENT_START_DEADLINE_SECONDS": "60",
    "TRIPLANE_PLACEMENT_DEADLINE_SECONDS": "1",
    "TRIPLANE_PLACEMENT_SEAL_CALL_SECONDS": "5",  # of a slow machine: a look may take longer than 2
    "TRIPLANE_PLACEMENT_UNANSWERED_SECONDS": "2",
    "TRIPLANE_PLACEMENT_SWEEP_SECONDS": "2",
    "TRIPLANE_DISPATCH_CALL_SECONDS": "2",
    "TRIPLANE_DISPATCH_LOOK_SECONDS": "2",
    "TRIPLANE_DISPATCH_SWEEP_SECONDS": "2",
    "TRIPLANE_AGENT_REPORT_SECONDS": "1",
    "TRIPLANE_AGENT_CLAIM_SECONDS": "2",
    "TRIPLANE_INVENTORY_STALE_SECONDS": "4",
    "TRIPLANE_INVENTORY_WATCH_SECONDS": "0.5",
    "TRIPLANE_HEALTH_STALE_SECONDS": "4",
    "TRIPLANE_HEALTH_LOST_SECONDS": "90",
    "TRIPLANE_HEALTH_WATCH_SECONDS": "0.5",
    "TRIPLANE_HEALTH_SWEEP_SECONDS": "2",
    "TRIPLANE_BILLING_SETTLE_SECONDS": "0.5",
    "TRIPLANE_BILLING_RATE_SECONDS": "0.5",
}
QUIET = """
    SELECT NOT EXISTS (SELECT FROM placement.grants WHERE live)
       AND NOT EXISTS (SELECT FROM admission.charges WHERE NOT over)
       AND NOT EXISTS (SELECT FROM placement.outbox WHERE sent_at IS NULL)
"""
DEAD = """
    SELECT split_part(subject, '.', 2) AS service, subject FROM (
        SELECT stream, subject, created_at FROM gateway.outbox
        UNION ALL SELECT stream, subject, created_at FROM admission.outbox
        UNION ALL SELECT stream, subject, created_at FROM placement.outbox
        UNION ALL SELECT stream, subject, created_at FROM dispatch.outbox
        UNION ALL SELECT stream, subject, created_at FROM inventory.outbox
        UNION ALL SELECT stream, subject, created_at FROM health.outbox
        UNION ALL SELECT stream, subject, created_at FROM billing.outbox
        UNION ALL SELECT stream, subject, created_at FROM audit.outbox
    ) said WHERE stream = 'DEAD' AND created_at > to_timestamp($1) LIMIT 10
"""
WHYS = """
    SELECT name, attempt, reason ->> 'code' AS code, reason ->> 'message' AS message, issued_at, revoked_at, claimed_at
    FROM placement.grants JOIN placement.parts ON grant_id = id ORDER BY issued_at
"""
TURNS = "SELECT DISTINCT extract(epoch FROM at)::float8 AS at FROM %I.%I"  # the server itself quotes the name
HEARD = "SELECT DISTINCT extract(epoch FROM heard_at)::float8 AS at FROM %I.%I"
MEMORIES = {"audit": "entries", "gateway": "event"}  # of services that need no inbox
STORY = """
    SELECT fact ->> 'time' AS at, fact ->> 'type' AS type, fact ->> 'data' AS data FROM (
        SELECT convert_from(body, 'UTF8')::jsonb AS fact FROM admission.outbox
        UNION ALL SELECT convert_from(body, 'UTF8')::jsonb FROM placement.outbox
        UNION ALL SELECT convert_from(body, 'UTF8')::jsonb FROM dispatch.outbox
    ) said WHERE fact #>> '{data,job}' = $1 ORDER BY 1
"""
DEVICES = "SELECT device FROM placement.devices JOIN placement.nodes USING (node) WHERE name = $1"


@dataclass(frozen=True)
class Stack:
    """A stack that is up. ``servers`` looks into the same three servers that the stack runs."""

    folder: StateFolder
    work_log: WorkLog
    servers: Servers
    access: Access

    def expect_up(self) -> None:
        """Assert that the stack itself still runs."""
        assert holder(self.folder) is not None, self.folder.end_of_log("stack")

    def pids(self) -> dict[str, int]:
        """Return which process runs each server, service and agent now."""
        return {name: record.pid for name, record in children.recorded(self.folder).items()}

    def posts(self) -> list[str]:
        """Return the names of all services and agents, replicas too."""
        names = ports.saved(self.folder)
        return sorted(name.removesuffix(HEALTH) for name in names if name.endswith(HEALTH))

    def kill(self, name: str) -> float:
        """End a server, service or agent as a crash would; return when, in seconds since 1970."""
        assert self.send(name, signal.SIGKILL), f"{name} was dead already"
        return time.time()

    def send(self, name: str, number: signal.Signals) -> bool:
        """Signal a server, service or agent; return False when it is not there now."""
        record = children.read_record(self.folder, name)
        assert record is not None, f"{name} has never run"
        return children.send(record, number)

    async def back(self, name: str, before: int) -> float:
        """Wait until another process than ``before`` does its work; return when, in seconds since 1970."""

        async def is_back() -> bool:
            return self.pids().get(name, before) != before and await self.answers(name)

        assert await eventually(is_back, BACK_SECONDS), name
        return time.time()

    @asynccontextmanager
    async def ledger(self) -> AsyncIterator[Connection]:
        """Look into every schema. Raises OSError and asyncpg's errors while Postgres is away."""
        connection = await self.servers.foundation.postgres.connect()
        try:
            yield connection
        finally:
            connection.terminate()

    async def is_quiet(self) -> bool:
        """Return whether nothing is under way: nothing held, nothing charged, nothing unsaid."""
        async with self.ledger() as ledger:
            return bool(await ledger.fetchval(QUIET))

    async def dead_letters(self, since: float) -> list[str]:
        """Return what services have set aside since a time, in seconds since 1970."""
        async with self.ledger() as ledger:
            return [f"a dead letter of {row['service']}: {row['subject']}" for row in await ledger.fetch(DEAD, since)]

    async def story(self, job: str) -> list[str]:
        """Return what was said of a job, in order."""
        async with self.ledger() as ledger:
            return [f"{row['at']} {row['type']} {row['data']}" for row in await ledger.fetch(STORY, job)]

    async def turns(self, service: str) -> list[float]:
        """Return when a service took in what it has heard, in seconds since 1970."""
        async with self.ledger() as ledger:
            template = HEARD if service in MEMORIES else TURNS
            memory = MEMORIES.get(service, "inbox")
            statement = await ledger.fetchval("SELECT format($1, $2::text, $3::text)", template, service, memory)
            return [row["at"] for row in await ledger.fetch(statement)]

    async def devices(self, agent: str) -> set[str]:
        """Return the devices of an agent's node."""
        async with self.ledger() as ledger:
            return {row["device"] for row in await ledger.fetch(DEVICES, agent.rpartition("-")[2])}

    async def whys(self, wrong: Collection[str]) -> list[str]:
        """Return why each grant ended of the jobs that these lines begin with."""
        names = {line.partition(" ")[0] for line in wrong}
        async with self.ledger() as ledger:
            return [str(dict(row)) for row in await ledger.fetch(WHYS) if row["name"] in names]

    @asynccontextmanager
    async def leases(self) -> AsyncIterator[Leases]:
        """Look into the leases."""
        leases = Leases(self.servers.operator_redis_url)
        try:
            yield leases
        finally:
            await leases.close()

    async def breaches(
        self, processes: Sequence[Process], seconds: float, *, besides: Collection[str] = ()
    ) -> list[str]:
        """Wait until nothing is under way, but not longer; return what does not hold then, ``besides`` these laws."""
        stints = [stint for process in processes for stint in process.stints()]
        found: list[str] = []

        async def nothing() -> bool:
            async with self.ledger() as ledger, self.leases() as leases:
                broken = await breaches(ledger, leases, stints, settled=True)
                found[:] = [each for each in broken if not any(law in each for law in besides)]
                found.extend([] if await self.is_quiet() else ["no quiet"])
            return not found

        with contextlib.suppress(AssertionError):
            await eventually(nothing, seconds, every=0.5)
        return found

    async def flush_redis(self) -> float:
        """Lose every lease."""
        async with Redis.from_url(self.servers.operator_redis_url) as redis:
            await redis.flushall()
        return time.time()

    async def delete_streams(self, *names: str) -> float:
        """Lose streams with their durables, or all of them."""
        connection = await connected(**self.servers.operator_nats)
        jetstream = connection.jetstream()
        there = [info.config.name or "" for info in await jetstream.streams_info()]
        for name in names or there:
            assert await jetstream.delete_stream(name), name
        await connection.close()
        return time.time()

    async def answers(self, name: str) -> bool:
        """Return whether a server, service or agent does its work now."""
        if name in SERVERS:
            return await self.servers.foundation.keepers[name].server.answers()
        return await is_ready(ports.saved(self.folder)[f"{name}{HEALTH}"])


def _as_people_do(state: Path, fleet: Path) -> list[str]:
    return ["deploy.embedded", "up", "--processes", "--fleet", str(fleet), "--state", str(state)]


def _no_more(folder: StateFolder) -> Mapping[str, str]:
    del folder
    return {}


@contextmanager
def stack(
    fleet: str,
    environment: Mapping[str, str] | None = None,
    disk: Path | None = None,
    *,
    program: Callable[[Path, Path], list[str]] = _as_people_do,
    prepared: Callable[[StateFolder], Mapping[str, str]] = _no_more,
) -> Iterator[Stack]:
    """Have a stack with this fleet inside, stopped afterwards; ``remove`` clears it away.

    ``environment``: more of it, for all of its processes. ``disk``: where its state goes, besides what jobs note.
    ``program``: the module that is the stack, with its arguments. ``prepared``: does what comes before the start, and
    returns still more of the environment.
    """
    above = Path(tempfile.mkdtemp(prefix="triplane-kills-"))
    above.chmod(0o711)  # jobs of a root's stack run as nobody
    work_log, folder = WorkLog(above / "work"), open_state((disk or above) / "state")
    work_log.lay_out()
    (above / "fleet.yaml").write_text(fleet)
    told = {**SHORT, "XDG_CONFIG_HOME": NOWHERE, **(environment or {}), **prepared(folder)}
    with open_log(folder.log_file("stack")) as log:
        process = subprocess.Popen(
            [*children.leash(signal.SIGTERM), sys.executable, "-m", *program(folder.root, above / "fleet.yaml")],
            stdout=log,
            stderr=log,
            env={**os.environ, **told},
        )
    try:
        asyncio.run(_ready(folder, process))
        yield _opened(folder, work_log)
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
        remove_runtime_folder(folder)


async def _ready(folder: StateFolder, process: "subprocess.Popen[bytes]") -> None:
    assert await eventually(lambda: process.poll() is not None or folder.ready_file.exists(), READY_SECONDS)
    assert process.poll() is None, folder.end_of_log("stack")


def remove(stopped: Stack) -> None:
    """Remove everything a stopped stack has left."""
    shutil.rmtree(stopped.folder.root)
    shutil.rmtree(stopped.work_log.folder.parent)


def _opened(folder: StateFolder, work_log: WorkLog) -> Stack:
    chosen = ports.saved(folder)
    foundation = lay(folder, Settings(), chosen)
    access = access_of(address_of(chosen), foundation.credentials.admin_token)
    return Stack(folder, work_log, Servers(foundation), access)
