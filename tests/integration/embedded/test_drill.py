"""The drill for an old backup: what was granted after it goes on, and by the runs' own record no device serves two."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path

import pytest

from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.config import CLIENT_FILE, read
from tests.support.eventually import eventually
from tests.support.stacks import embedded
from tests.support.work_log import Process, WorkLog, doubled

pytestmark = [pytest.mark.kills, pytest.mark.timeout(400)]  # whole stacks, for minutes where the machine is busy
FLEET = """
apiVersion: triplane/v1
kind: GpuClass
metadata: {name: virtual}
spec: {match: {model: Virtual GPU}}
---
apiVersion: triplane/v1
kind: Cluster
metadata: {name: demo}
spec:
  backend: local
  nodes: [{name: n1, devices: 4, model: Virtual GPU}, {name: n2, devices: 4, model: Virtual GPU}]
"""
QUEUE = """
apiVersion: triplane/v1
kind: Queue
metadata: {name: nlp, tenant: research}
spec: {quotas: [{class: virtual, nominal: 64}]}
"""


async def test_r12_after_an_old_backup_what_runs_is_taken_up_and_no_device_serves_two(
    state: Path, tmp_path: Path, log: WorkLog
) -> None:
    fleet, file = tmp_path / "fleet.yaml", tmp_path / "triplane.backup"
    fleet.write_text(FLEET)
    assert (await embedded("up", "--detach", "--fleet", fleet, "--state", state)).code == 0
    async with client(state) as admin:
        await admin.ask(calls.create_tenant("research"))
        await submit(admin, QUEUE + job(log, "blocker", 2, 4, "saved") + job(log, "later", 1, 2, "settled"))
        assert await eventually(lambda: began(log, "blocker", 2), seconds=60)
        assert (await embedded("backup", file, "--state", state)).code == 0
        log.say("saved")
        await submit(admin, job(log, "stranger", 1, 2, "never"))  # the backup knows no such job
        assert await eventually(lambda: began(log, "later", 1) and began(log, "stranger", 1), seconds=60)
    await embedded("down", "--state", state)

    assert (await embedded("restore", file, "--state", state, "--replace")).code == 0
    assert (await embedded("up", "--detach", "--state", state)).code == 0
    async with client(state) as admin:
        assert await eventually(lambda: is_in(admin, "blocker", "Succeeded"), seconds=90)
        assert await eventually(lambda: is_in(admin, "later", "Running"), seconds=60)
        await submit(admin, job(log, "after", 2, 4, "0"))
        assert not began(log, "after", 1)
        assert log.read("stranger")[0].end is None
        assert await eventually(lambda: lifts(state), seconds=60)
        assert await eventually(lambda: log.read("stranger")[0].end, seconds=60)  # stopped by name, after the lift
        log.say("settled")
        assert await eventually(lambda: is_in(admin, "later", "Succeeded"), seconds=60)
        assert await eventually(lambda: is_in(admin, "after", "Succeeded"), seconds=60)
        assert await admin.ask(calls.escalations()) == []
    assert doubled(log.read()) == []
    assert together(log.read()) == []


def job(log: WorkLog, name: str, replicas: int, devices: int, until: str) -> str:
    return (
        f"---\napiVersion: triplane/v1\nkind: Job\nmetadata: {{name: {name}, tenant: research}}\n"
        f"spec: {{queue: nlp, replicas: {replicas}, devicesPerReplica: {devices}, workdir: {log.folder}, "
        f'command: [sh, work.sh, "{until}"]}}\n'
    )


def began(log: WorkLog, name: str, processes: int) -> bool:
    return len(log.read(name)) == processes


def together(processes: list[Process]) -> list[str]:
    """Return who was on one device at the same time as another."""
    return [
        f"{one.job} and {other.job}"
        for one, other in combinations(processes, 2)
        if set(one.devices) & set(other.devices)
        and one.begin < (other.end or float("inf"))
        and other.begin < (one.end or float("inf"))
    ]


@asynccontextmanager
async def client(state: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(read(state / CLIENT_FILE)) as admin:
        yield admin


async def submit(admin: AsyncClient, text: str) -> None:
    answer = await admin.ask(calls.submit(text.encode()))
    assert [result.faults for result in answer.results] == [()] * len(answer.results)


async def is_in(admin: AsyncClient, name: str, wanted: str) -> bool:
    found = [each.state for each in (await admin.ask(calls.jobs())).items if each.name == name]
    return found == [wanted]


async def lifts(state: Path) -> bool:
    return (await embedded("lift-stop", "--by", "ada", "--state", state)).said.endswith("Grants go on.\n")
