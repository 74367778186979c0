"""Dispatch on real NATS and Postgres, with a pretended cluster behind a real agent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from libs.service import Service
from schemas.base import Event
from schemas.ids import cluster_id, device_id, node_id
from schemas.reasons import Code
from schemas.workload import (
    GrantedDevice,
    GrantIssued,
    GrantPart,
    ReplicaSlot,
    RunAccepted,
    RunFailed,
    RunLaunched,
    RunStarted,
    RunStopped,
    RunSucceeded,
    Work,
)
from services.agent.app import build as build_agent
from services.agent.settings import Settings as AgentSettings
from services.dispatch.app import build
from services.dispatch.settings import Settings
from tests.support.builders import a_grant, an_envelope, released, revoked
from tests.support.eventually import eventually
from tests.support.ledgers import Ledger
from tests.support.servers import Servers
from tests.support.wire import Wire, wire

CLUSTER = "stage"
DOCUMENT = """
apiVersion: triplane/v1
kind: Cluster
metadata: {name: stage}
spec:
  backend: pretend
  nodes:
    - {name: n1, devices: 4, model: Virtual GPU}
    - {name: n2, devices: 4, model: Virtual GPU}
"""


@dataclass
class Stage:
    """A destination, the ledger it asks, and the bus."""

    servers: Servers
    folder: Path
    ledger: Ledger
    line: Wire

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[None]:
        settings = AgentSettings(document=self.folder / "cluster.yaml", runtime_dir=self.folder / "run")
        async with running(build_agent(await self.servers.infrastructure("agent"), settings)):
            yield

    @asynccontextmanager
    async def dispatch(self, **settings: Any) -> AsyncIterator[None]:
        quick = {"work_seconds": 0.1, "look_seconds": 0.3, "call_seconds": 1.0, "apart_seconds": 0, **settings}
        async with running(build(await self.servers.infrastructure("dispatch"), Settings.model_validate(quick))):
            yield

    async def settled(self) -> bool:
        surroundings = await self.servers.infrastructure("dispatch")
        rows = await asyncpg.connect(surroundings.postgres_dsn.get_secret_value())
        try:
            return bool(await rows.fetchval("SELECT bool_and(settled) FROM runs"))
        finally:
            await rows.close()

    async def issue(self, grant: GrantIssued) -> None:
        await self.line.say(an_envelope(grant, key=grant.grant))

    async def revoke(self, grant: GrantIssued, code: Code = Code.ATTEMPT_OVER) -> None:
        self.ledger.over.add(grant.grant)
        await self.line.say(an_envelope(revoked(grant, code), key=grant.grant, version=2))


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    await service.start()
    try:
        yield
    finally:
        await service.stop()


@pytest.fixture
async def stage(servers: Servers, tmp_path: Path) -> AsyncIterator[Stage]:
    (tmp_path / "cluster.yaml").write_text(DOCUMENT)
    ledger = Ledger(service=Service("placement", await servers.infrastructure("placement"), postgres=False))
    ledger.answer()
    async with wire(servers) as line, running(ledger.service):
        yield Stage(servers, tmp_path, ledger, line)


def part(node: str, rank: int) -> GrantPart:
    place = node_id(cluster_id(CLUSTER), node)
    device = GrantedDevice(device=device_id(place, f"GPU-{CLUSTER}-{node}-0"), index=0, ordinal=rank)
    return GrantPart(node=place, node_name=node, replicas=(ReplicaSlot(rank=rank, devices=(device,)),))


def a_run(*command: str, name: str = "train", nodes: tuple[str, ...] = ("n1",)) -> GrantIssued:
    parts = tuple(part(node, rank) for rank, node in enumerate(nodes))
    grant = a_grant(name, *parts, work=Work(command=command))
    return grant.model_copy(update={"cluster": cluster_id(CLUSTER)})


def said(line: Wire) -> list[str]:
    kinds: tuple[type[Event], ...] = (RunLaunched, RunAccepted, RunStarted, RunSucceeded, RunFailed, RunStopped)
    facts = {envelope.id: type(envelope.data) for envelope in line.heard if isinstance(envelope.data, kinds)}
    return [kind.__name__ for kind in facts.values()]


async def test_a_gang_over_two_nodes_is_launched_started_and_succeeds_and_each_is_said_once(stage: Stage) -> None:
    async with stage.agent(), stage.dispatch():
        await stage.issue(a_run("sleep", "0.3", nodes=("n1", "n2")))
        await stage.line.wait(RunSucceeded)
        assert said(stage.line) == ["RunLaunched", "RunAccepted", "RunStarted", "RunSucceeded"]
        assert len(stage.ledger.claims) == 2


async def test_an_exit_code_becomes_a_failure_with_its_reason(stage: Stage) -> None:
    async with stage.agent(), stage.dispatch():
        await stage.issue(a_run("exit", "7"))
        (failed,) = await stage.line.wait(RunFailed)
        assert (failed.exit_code, failed.reason.code) == (7, Code.NON_ZERO_EXIT_CODE)


async def test_what_was_taken_back_before_its_launch_never_starts(stage: Stage) -> None:
    grant = a_run("sleep", "60")
    await stage.revoke(grant)
    await stage.issue(grant)
    async with stage.agent(), stage.dispatch():
        (stopped,) = await stage.line.wait(RunStopped)
        assert stopped.reason.code is Code.ATTEMPT_OVER
        assert stage.ledger.claims == []


async def test_a_run_that_was_taken_back_is_stopped_on_its_node(stage: Stage) -> None:
    async with stage.agent(), stage.dispatch():
        grant = a_run("sleep", "3600")
        await stage.issue(grant)
        await stage.line.wait(RunStarted)
        await stage.revoke(grant, Code.DRAINED)
        (stopped,) = await stage.line.wait(RunStopped)
        assert stopped.reason.code is Code.DRAINED


async def test_a_node_that_does_not_answer_is_asked_again_and_the_run_starts_once(stage: Stage) -> None:
    async with stage.dispatch():
        await stage.issue(a_run("sleep", "0.1"))
        await stage.line.wait(RunLaunched)
        async with stage.agent():
            await stage.line.wait(RunSucceeded, seconds=30)
            assert said(stage.line) == ["RunLaunched", "RunAccepted", "RunStarted", "RunSucceeded"]
            assert len(stage.ledger.claims) == 1


async def test_a_run_that_ends_while_dispatch_is_away_has_its_result_when_it_is_back(stage: Stage) -> None:
    async with stage.agent():
        async with stage.dispatch():
            await stage.issue(a_run("sleep", "1"))
            await stage.line.wait(RunStarted)
        async with stage.dispatch():
            await stage.line.wait(RunSucceeded)
            assert said(stage.line) == ["RunLaunched", "RunAccepted", "RunStarted", "RunSucceeded"]


async def test_a_result_that_nobody_answered_is_said_again(stage: Stage) -> None:
    async with stage.agent(), stage.dispatch(sweep_seconds=0.4):
        await stage.issue(a_run("done"))
        await stage.line.wait(RunSucceeded)
        await eventually(lambda: sum(isinstance(e.data, RunSucceeded) for e in stage.line.heard) > 1, 60)
        assert len(stage.line.facts(RunSucceeded)) == 1


async def test_a_result_is_said_again_when_the_revocation_that_followed_it_is(stage: Stage) -> None:
    grant = a_run("done")
    async with stage.agent(), stage.dispatch(sweep_seconds=0.4):
        await stage.issue(grant)
        await stage.line.wait(RunSucceeded)
        end = an_envelope(revoked(grant), key=grant.grant, version=2)
        await stage.line.say(end, an_envelope(released(grant), key=grant.grant, version=3))
        await eventually(stage.settled)
        stage.line.heard.clear()

        async def told_again() -> bool:
            await stage.line.say(end, again=f".{len(stage.line.heard) + 2}")
            return any(isinstance(envelope.data, RunSucceeded) for envelope in stage.line.heard)

        await eventually(told_again, every=0.2)
