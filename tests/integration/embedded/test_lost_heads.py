"""The head of a gang dies, its helper ends well, and something of a worker lives on: nothing is forgotten or freed."""

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from asyncpg import Record

from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.models import Escalation, Settlement
from schemas.reasons import Code
from tests.support import victims
from tests.support.eventually import eventually
from tests.support.stacks import is_running
from tests.support.victims import Stack

FLEET = """
apiVersion: triplane/v1
kind: GpuClass
metadata: {name: h100}
spec: {match: {model: NVIDIA H100 80GB HBM3}, pricePerHour: "2.50 USD"}
---
apiVersion: triplane/v1
kind: Cluster
metadata: {name: ray}
spec:
  backend: local
  nodes:
    - {name: n1, devices: 4, model: NVIDIA H100 80GB HBM3}
    - {name: n2, devices: 4, model: NVIDIA H100 80GB HBM3}
    - {name: n3, devices: 4, model: NVIDIA H100 80GB HBM3}
"""
DOCUMENTS = """
apiVersion: triplane/v1
kind: Queue
metadata: {name: main, tenant: TENANT}
spec: {quotas: [{class: h100, nominal: 12}]}
---
apiVersion: triplane/v1
kind: Job
metadata: {name: JOB, tenant: TENANT}
spec: {queue: main, replicas: 3, devicesPerReplica: 4, retries: 0, grace: 4s, workdir: FOLDER, command: [sh, COMMAND]}
"""
# Rank 0 is the head, with a submitter beside it that ends well when it is told to. Rank 2 has an actor in a session of
# its own, which is deaf to TERM.
ROLES = """
case $RANK in
0) sh -c 'trap "echo submitter 0 >> log-$TRIPLANE_TENANT; exit 0" TERM; sleep 100 & wait' & ;;
2) (setsid sh -c 'trap "" TERM; echo actor $$ >> log-$TRIPLANE_TENANT; exec sleep 100' &) ;;
esac
echo "rank$RANK $$" >> log-$TRIPLANE_TENANT
exec sleep 100
"""
RANKS = {"rank0", "rank1", "rank2", "actor"}
GANG = "gang"
FAILED_SECONDS, STUCK_SECONDS, GRACE_SECONDS = 180, 3, 4
PARTS = """
    SELECT n.name, p.state, p.proof, p.released_at, p.escalated_at, g.issued_at, g.revoked_at
    FROM placement.parts p JOIN placement.grants g ON g.id = p.grant_id JOIN placement.nodes n USING (node)
    WHERE (g.tenant, g.name) = ($1, $2)
"""
BILLED = """
    SELECT n.name, l.account, count(*)::int AS devices, min(l.started_at) AS since, max(l.ended_at) AS until
    FROM billing.lines l JOIN placement.grants g ON g.id = l.grant_id JOIN placement.nodes n ON n.node = l.node
    WHERE (g.tenant, g.name) = ($1, $2) GROUP BY n.name, l.account
"""


def _in_one_process(state: Path, fleet: Path) -> list[str]:
    return ["deploy.embedded", "up", "--fleet", str(fleet), "--state", str(state)]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    waits = {"TRIPLANE_PLACEMENT_STUCK_AFTER_SECONDS": str(STUCK_SECONDS)}
    with victims.stack(FLEET, waits, program=_in_one_process) as opened:
        (opened.work_log.folder / "roles.sh").write_text(ROLES)
        yield opened
    victims.remove(opened)


class Bill(NamedTuple):
    """Who pays for devices of a node, and for which time."""

    account: str
    devices: int
    since: datetime
    until: datetime


@dataclass
class Stage:
    """A tenant with a gang in the roles of Ray: a head and two workers."""

    stack: Stack
    admin: AsyncClient
    tenant: str

    @property
    def next(self) -> str:
        """The job that wants the same devices afterwards."""
        return f"next-{self.tenant}"

    @property
    def log(self) -> Path:
        return self.stack.work_log.folder / f"log-{self.tenant}"

    def noted(self) -> dict[str, int]:
        return {who: int(what) for who, what in map(str.split, self.log.read_text().splitlines())}

    async def submit(self, job: str, command: str) -> None:
        filled = {"TENANT": self.tenant, "JOB": job, "COMMAND": command, "FOLDER": str(self.stack.work_log.folder)}
        text = DOCUMENTS
        for name, value in filled.items():
            text = text.replace(name, value)
        answer = await self.admin.ask(calls.submit(text.encode()))
        assert [result.faults for result in answer.results] == [(), ()]

    async def is_in(self, job: str, state: str) -> bool:
        return (await self.admin.ask(calls.job(job, tenant=self.tenant))).state == state

    async def parts(self) -> Mapping[str, Record]:
        async with self.stack.ledger() as ledger:
            return {row["name"]: row for row in await ledger.fetch(PARTS, self.tenant, GANG)}

    async def released(self) -> set[str]:
        return {name for name, part in (await self.parts()).items() if part["state"] == "Released"}

    async def bills(self) -> dict[str, list[Bill]]:
        async with self.stack.ledger() as ledger:
            rows = [tuple(row.values()) for row in await ledger.fetch(BILLED, self.tenant, GANG)]
        return {name: sorted(Bill(*bill) for each, *bill in rows if each == name) for name, *_ in rows}

    async def listed(self) -> dict[str, Escalation]:
        return {each.code: each for each in await self.admin.ask(calls.escalations())}

    async def begun(self) -> float:
        """Wait until the next job has succeeded on all devices; return when its first process began."""
        await eventually(lambda: self.is_in(self.next, "Succeeded"), 60)
        return min(process.begin for process in self.stack.work_log.read(self.next) if process.end)


@pytest.fixture
async def stage(stack: Stack) -> AsyncIterator[Stage]:
    """A gang that runs on all devices of three nodes."""
    tenant = f"ray-{uuid4().hex[:6]}"
    async with AsyncClient(stack.access) as admin:
        opened = Stage(stack, admin, tenant)
        opened.log.touch()
        opened.log.chmod(0o666)
        await admin.ask(calls.create_tenant(tenant))
        await opened.submit(GANG, "roles.sh")
        await eventually(lambda: opened.noted().keys() == RANKS, 60)
        await eventually(lambda: opened.is_in(GANG, "Running"), 60)
        yield opened


@contextmanager
def a_survivor(of: int) -> Iterator["subprocess.Popen[bytes]"]:
    """Have a process that no tree and no mark leads to, with the file of one device open that a process has."""
    files = [each.readlink() for each in Path(f"/proc/{of}/fd").iterdir()]
    device = min(file for file in files if file.parent.name == "devices")
    with device.open() as file:
        survivor = subprocess.Popen(["sleep", "100"], stdin=file)
    try:
        yield survivor
    finally:
        survivor.kill()
        survivor.wait()


async def the_head_dies(stage: Stage) -> None:
    """Kill it as the kernel does when memory runs out, see the gang fail, and have somebody want all devices."""
    noted = stage.noted()
    os.kill(noted["rank0"], signal.SIGKILL)
    killed = time.monotonic()
    await eventually(lambda: stage.is_in(GANG, "Failed"), FAILED_SECONDS)
    assert time.monotonic() - killed < FAILED_SECONDS
    await stage.submit(stage.next, "work.sh, '0.1'")
    await eventually(lambda: not is_running(noted["actor"]), 60)
    assert time.monotonic() - killed >= GRACE_SECONDS


@pytest.mark.timeout(300)
async def test_s37_a_gang_that_lost_its_head_fails_and_what_a_process_still_uses_is_nobody_s(stage: Stage) -> None:
    noted = stage.noted()
    with a_survivor(noted["rank2"]) as survivor:
        await the_head_dies(stage)
        job = await stage.admin.ask(calls.job(GANG, tenant=stage.tenant))
        await eventually(lambda: is_listed(stage, "StuckTermination", "UnmanagedUse"), 60)
        listed = await stage.listed()
        assert await stage.released() == {"n1", "n2"}
        assert not await stage.is_in(stage.next, "Running")
        survivor.kill()
        survivor.wait()
        gone = time.time()
    assert (job.attempt, job.exit_code, job.said and job.said.message, stage.noted()["submitter"]) == (
        1,
        137,
        "rank 0 was ended by signal 9 on node n1",
        0,
    )
    stuck, used = listed["StuckTermination"], listed["UnmanagedUse"]
    assert (stuck.state, stuck.node_name, stuck.job_name, len(stuck.devices)) == ("Quarantined", "n3", GANG, 4)
    assert (used.node_name, len(used.devices), f"{survivor.pid}" in used.message) == ("n3", 1, True)
    assert await stage.begun() > gone
    parts = await stage.parts()
    assert {part["proof"] for part in parts.values()} == {"Seal"}
    assert parts["n3"]["released_at"] > datetime.fromtimestamp(gone, UTC)
    bills = await eventually(lambda: all_billed(stage), 60)
    assert bills == {name: the_bill(stage.tenant, part) for name, part in parts.items()}
    assert await eventually(lambda: is_listed(stage), 60)


@pytest.mark.timeout(300)
async def test_s37_after_a_person_s_word_the_device_of_a_process_without_a_grant_is_given_to_nobody(
    stage: Stage,
) -> None:
    with a_survivor(stage.noted()["rank2"]) as survivor:
        await the_head_dies(stage)
        await eventually(lambda: is_listed(stage, "StuckTermination", "UnmanagedUse"), 60)
        stuck = (await stage.listed())["StuckTermination"]
        word = Settlement(reason="nothing of it is left")
        await stage.admin.ask(calls.settle(str(stuck.grant), str(stuck.node), word))
        assert await stage.released() == {"n1", "n2", "n3"}
        await eventually(lambda: is_told(stage, free=11), 60)
        assert (await stage.listed()).keys() == {"Overridden", "UnmanagedUse"}
        survivor.kill()
        survivor.wait()
        gone = time.time()
    assert await stage.begun() > gone
    assert await eventually(lambda: is_listed(stage), 60)


async def is_listed(stage: Stage, *codes: str) -> bool:
    return (await stage.listed()).keys() == set(codes)


async def is_told(stage: Stage, *, free: int) -> bool:
    """Say whether the ledger has said of the next job that it waits since no more than so many devices are free."""
    said = (await stage.admin.ask(calls.job(stage.next, tenant=stage.tenant))).said
    return said is not None and (said.code, said.numbers.get("free")) == (Code.WAITING_FOR_CAPACITY, free)


async def all_billed(stage: Stage) -> dict[str, list[Bill]]:
    bills = await stage.bills()
    return bills if bills.keys() == {"n1", "n2", "n3"} else {}


def the_bill(tenant: str, part: Record) -> list[Bill]:
    """The tenant pays until the proof, but no longer than until somebody had to look; then the platform does."""
    stuck, released = part["escalated_at"], part["released_at"]
    if stuck is None:
        return [Bill(tenant, 4, part["issued_at"], released)]
    return [Bill("platform-loss", 4, stuck, released), Bill(tenant, 4, part["issued_at"], stuck)]
