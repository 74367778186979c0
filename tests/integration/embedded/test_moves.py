"""A node moves from one cluster to another under real processes, by command, and jobs flow on its new owner."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.config import CLIENT_FILE, read
from tests.support.eventually import eventually
from tests.support.stacks import embedded

FLEET = """
apiVersion: triplane/v1
kind: GpuClass
metadata: {name: h100}
spec: {match: {model: NVIDIA H100 80GB HBM3}, pricePerHour: "2.50 USD"}
---
apiVersion: triplane/v1
kind: Cluster
metadata: {name: demo}
spec: {backend: local, nodes: [{name: n1, devices: 2, model: NVIDIA H100 80GB HBM3}]}
---
apiVersion: triplane/v1
kind: Cluster
metadata: {name: batch}
spec: {backend: local}
"""
QUEUE = """
apiVersion: triplane/v1
kind: Queue
metadata: {name: nlp, tenant: research}
spec: {quotas: [{class: h100, nominal: 4}]}
"""
JOB = """
apiVersion: triplane/v1
kind: Job
metadata: {name: NAME, tenant: research}
spec: {queue: nlp, devicesPerReplica: 2, command: [COMMAND]}
"""


@pytest.mark.timeout(240)
async def test_a_node_is_moved_by_command_and_real_jobs_flow_on_its_new_owner(state: Path) -> None:
    fleet = state.with_name("fleet.yaml")
    fleet.write_text(FLEET)
    assert (await embedded("up", "--detach", "--fleet", fleet, "--state", state)).code == 0
    async with AsyncClient(read(state / CLIENT_FILE)) as admin:
        await admin.ask(calls.create_tenant("research"))
        await _submit(admin, QUEUE, a_job("first", 'sleep, "600"'))
        await eventually(lambda: _is(admin, "first", "Running"), 60)
        code, said = await command(
            state, "move", "n1", "--to", "batch", "--reason", "more batch work", "--owner", "ada"
        )
        assert (code, said.startswith("n1 is on its way from demo to batch (move_")) == (0, True)
        (line,) = json.loads((await command(state, "moves", "-o", "json"))[1])
        await eventually(lambda: _waits(state, "StillGranted"), 30)
        assert (line["node_name"], line["source"], line["target"], line["owner"]) == ("n1", "demo", "batch", "ada")
        await admin.ask(calls.cancel("first", tenant="research"))
        await eventually(lambda: _owned_by(admin, "batch"), 60)
        assert await command(state, "moves", "-o", "json") == (0, "[]\n")
        await _submit(admin, a_job("second", '"true"'))
        await eventually(lambda: _is(admin, "second", "Succeeded"), 60)
        await eventually(lambda: _counts(admin, ("batch", 2, 2)), 30)
        code, said = await command(state, "move", "n1", "--to", "batch", "--reason", "again")
        assert (code, "n1 is batch's already" in said) == (6, True)
        code, said = await command(state, "move", "n1", "--to", "nowhere", "--reason", "typo")
        assert (code, "there is no cluster nowhere" in said, "batch, demo" in said) == (3, True, True)


def a_job(name: str, words: str) -> str:
    return JOB.replace("NAME", name).replace("COMMAND", words)


async def command(state: Path, *words: str) -> tuple[int, str]:
    """Run `triplane` and return its exit code with all that it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cli.main",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "TRIPLANE_STATE": str(state), "TRIPLANE_CONFIG": str(state / CLIENT_FILE)},
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def _submit(admin: AsyncClient, *documents: str) -> None:
    answer = await admin.ask(calls.submit("---".join(documents).encode()))
    assert [result.faults for result in answer.results] == [()] * len(documents)


async def _is(admin: AsyncClient, name: str, state: str) -> bool:
    return (await admin.ask(calls.job(name, tenant="research"))).state == state


async def _waits(state: Path, code: str) -> bool:
    lines: list[dict[str, Any]] = json.loads((await command(state, "moves", "-o", "json"))[1])
    return [line["code"] for line in lines] == [code]


async def _counts(admin: AsyncClient, *expected: tuple[str, int, int]) -> bool:
    found = await admin.ask(calls.fleet())
    return [(count.cluster, count.total, count.idle) for count in found] == list(expected)


async def _owned_by(admin: AsyncClient, cluster: str) -> bool:
    (node,) = (await admin.ask(calls.nodes())).items
    assert (node.cluster, node.state) == (cluster, "ready"), await admin.ask(calls.moves(every=True))
    return True
