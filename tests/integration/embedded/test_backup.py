"""A stack is backed up while jobs run, lost, restored, and goes on; what it does not know is not granted over."""

import io
import json
import re
import shutil
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deploy.embedded import ledger
from deploy.embedded.invariants import breaches
from deploy.embedded.state import open_state
from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.config import CLIENT_FILE, read
from libs.client.models import Job
from libs.leases import Leases
from tests.support.eventually import eventually
from tests.support.stacks import embedded
from tests.support.work_log import WorkLog

FLEET = """
apiVersion: triplane/v1
kind: GpuClass
metadata: {name: virtual}
spec: {match: {model: Virtual GPU}}
---
apiVersion: triplane/v1
kind: Cluster
metadata: {name: demo}
spec: {backend: local, nodes: [{name: n1, devices: 4, model: Virtual GPU}]}
"""
QUEUE = """
apiVersion: triplane/v1
kind: Queue
metadata: {name: nlp, tenant: research}
spec: {quotas: [{class: virtual, nominal: 4}]}
"""


def job(log: WorkLog, name: str, devices: int, until: str = "0") -> str:
    return (
        f"---\napiVersion: triplane/v1\nkind: Job\nmetadata: {{name: {name}, tenant: research}}\n"
        f"spec: {{queue: nlp, devicesPerReplica: {devices}, retries: 1, workdir: {log.folder}, "
        f'command: [sh, work.sh, "{until}"]}}\n'
    )


@pytest.mark.timeout(280)
async def test_a_backup_taken_while_jobs_run_brings_all_back_and_nothing_is_granted_until_a_person_says_so(
    state: Path, tmp_path: Path, log: WorkLog
) -> None:
    fleet, file = tmp_path / "fleet.yaml", tmp_path / "triplane.backup"
    fleet.write_text(FLEET)
    assert (await embedded("up", "--detach", "--fleet", fleet, "--state", state)).code == 0
    async with client(state) as admin:
        await admin.ask(calls.create_tenant("research"))
        await submit(admin, QUEUE + job(log, "quick", 1) + job(log, "long", 3, "restored") + job(log, "next", 4))
        assert await eventually(lambda: in_state(admin, "quick", "Succeeded"), seconds=60)
        assert await eventually(lambda: in_state(admin, "long", "Running"), seconds=60)
        before = await embedded("backup", file, "--state", state)
        assert (before.code, file.stat().st_mode & 0o777) == (0, 0o600), before.said
        await submit(admin, job(log, "forgotten", 1))
    assert (await embedded("restore", file, "--state", state, "--replace")).code == 6  # a stack runs there
    await embedded("down", "--state", state)
    shutil.rmtree(state)

    restored = await embedded("restore", file, "--state", state)
    assert restored.code == 0, restored.said
    assert (await embedded("lift-stop", "--by", "ada", "--state", state)).code == 5  # its nodes are not heard yet
    assert (await embedded("up", "--detach", "--state", state)).code == 0
    async with client(state) as admin:  # by the same token
        assert {each.name for each in (await admin.ask(calls.jobs())).items} == {"quick", "long", "next"}
        log.say("restored")
        assert await eventually(lambda: in_state(admin, "long", "Succeeded"), seconds=90)
        assert not await in_state(admin, "next", "Succeeded")
        assert await eventually(lambda: lifts(state), seconds=60)
        assert await eventually(lambda: in_state(admin, "next", "Succeeded"), seconds=60)
    assert await eventually(lambda: holds(state), seconds=60), await broken(state)


async def test_a_stopped_stack_is_backed_up_too_and_a_ledger_is_replaced_only_when_told(
    state: Path, tmp_path: Path
) -> None:
    file = tmp_path / "triplane.backup"
    assert (await embedded("up", "--detach", "--servers-only", "--state", state)).code == 0
    await embedded("down", "--state", state)
    assert (await embedded("backup", file, "--state", state)).code == 0
    assert (await embedded("backup", file, "--state", state)).said == (
        f"{file} exists. Name another file: a backup never replaces one.\n"
    )
    assert (await embedded("restore", file, "--state", state)).code == 6
    outcome = await embedded("restore", file, "--state", state, "--replace")
    assert outcome.code == 0, outcome.said
    assert [(path / "postgres" / "data" / "PG_VERSION").exists() for path in state.glob("before-restore-*")] == [True]


async def test_a_backup_of_a_newer_release_is_refused_and_the_state_stays_empty(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "triplane.backup"
    manifest = json.dumps({"format": 2, "state_format": 1, "postgres": 18, "made_at": "2026-11-30T00:00:00Z"}).encode()
    with tarfile.open(file, "w") as archive:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(manifest)
        archive.addfile(entry, io.BytesIO(manifest))
    outcome = await embedded("restore", file, "--state", state)
    newer = "was made by a newer release: its format is 2, this release reads up to 1. Restore it with that release."
    assert (outcome.code, outcome.said) == (4, f"{file} {newer}\n")
    assert not (state / "credentials.json").exists()


async def test_a_file_that_is_no_backup_is_bad_input(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no backup\n")
    for named in (file, tmp_path / "not-there"):
        outcome = await embedded("restore", named, "--state", state)
        assert outcome.code == 2
        assert outcome.said.startswith(f"{named} is no backup of a stack: ")
        assert outcome.said.endswith("Name a file that `triplane backup` wrote.\n")


@asynccontextmanager
async def client(state: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(read(state / CLIENT_FILE)) as admin:
        yield admin


async def submit(admin: AsyncClient, text: str) -> None:
    answer = await admin.ask(calls.submit(text.encode()))
    assert [result.faults for result in answer.results] == [()] * len(answer.results)


async def in_state(admin: AsyncClient, name: str, wanted: str) -> bool:
    found: list[Job] = [each for each in (await admin.ask(calls.jobs())).items if each.name == name]
    return [each.state for each in found] == [wanted]


async def lifts(state: Path) -> bool:
    outcome = await embedded("lift-stop", "--by", "ada", "--state", state)
    why, lifted = r"Since \S+ \S+ UTC: the ledger was restored from a backup\.", r"Lifted 1 by ada\. Grants go on\."
    return re.fullmatch(rf"{why}\n{lifted}\n", outcome.said) is not None


async def holds(state: Path) -> bool:
    return not await broken(state)


async def broken(state: Path) -> list[str]:
    server = ledger.of_running(open_state(state))
    connection = await server.connect()
    redis = json.loads((state / "ports.json").read_text())["redis"]
    leases = Leases(f"redis://triplane:{server.credentials.redis['triplane']}@127.0.0.1:{redis}/0")
    try:
        return await breaches(connection, leases, settled=True)
    finally:
        await leases.close()
        await connection.close()
