"""Running jobs outlive the stack that started them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.config import CLIENT_FILE, read
from libs.client.models import JobDetail
from tests.support.eventually import eventually
from tests.support.stacks import crash, embedded, stack_pid
from tests.support.work_log import WorkLog

FLEET = Path(__file__).parents[3] / "deploy/embedded/demo/fleet.yaml"
DOCUMENTS = """
apiVersion: triplane/v1
kind: Queue
metadata: {name: nlp, tenant: research}
spec: {quotas: [{class: h100, nominal: 32}]}
---
apiVersion: triplane/v1
kind: Job
metadata: {name: long, tenant: research}
spec: {queue: nlp, replicas: 2, devicesPerReplica: 8, workdir: WORK, command: [sh, work.sh, "taken up"]}
"""
TAKES_UP = "the next `triplane up` takes up what still runs."


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["crash", "down"])
async def test_a_running_gang_goes_on_and_is_taken_up_again(state: Path, log: WorkLog, how: str) -> None:
    assert (await embedded("up", "--detach", "--fleet", FLEET, "--state", state)).code == 0
    async with client(state) as admin:
        await admin.ask(calls.create_tenant("research"))
        answer = await admin.ask(calls.submit(DOCUMENTS.replace("WORK", str(log.folder)).encode()))
        assert [result.faults for result in answer.results] == [(), ()]
        assert await eventually(lambda: has_state(admin, "Running"), seconds=60)
    if how == "crash":
        crash(stack_pid(state))
    else:
        stopped = await embedded("down", "--state", state)
        assert stopped.said == f"Stopped: stack.\n2 runs go on; {TAKES_UP}\n"
    assert (await embedded("up", "--detach", "--state", state)).code == 0
    log.say("taken up")
    async with client(state) as admin:
        assert await eventually(lambda: has_ended(admin), seconds=90)
        job = await long(admin)
    assert (job.state, job.attempt, job.exit_code) == ("Succeeded", 1, 0)
    assert sorted((process.attempt, process.rank) for process in log.read()) == [(1, 0), (1, 1)]


@asynccontextmanager
async def client(state: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(read(state / CLIENT_FILE)) as admin:
        yield admin


async def long(admin: AsyncClient) -> JobDetail:
    return await admin.ask(calls.job("long", tenant="research"))


async def has_state(admin: AsyncClient, state: str) -> bool:
    return (await long(admin)).state == state


async def has_ended(admin: AsyncClient) -> bool:
    return (await long(admin)).ended
