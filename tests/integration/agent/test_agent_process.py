import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from libs.config import Infrastructure
from libs.service import Service
from schemas.base import fact_type
from schemas.calls import LaunchOrder
from schemas.codec import decode
from schemas.ids import cluster_id
from schemas.runtime import ObservationNoticed, ObservationReported, RunEvent
from services.agent.store import processes
from services.agent.store.folder import RunFolder, RuntimeFolder
from tests.support.builders_agent import an_order
from tests.support.eventually import eventually
from tests.support.ledgers import Ledger
from tests.support.servers import Servers
from tests.support.wire import Wire, wire


@dataclass
class Machine:
    """A machine whose agent is a process of its own."""

    path: Path
    infrastructure: Infrastructure
    ledger: Ledger
    wire: Wire
    servers: Servers
    cluster: str = field(default_factory=lambda: f"c{uuid4().hex[:8]}")
    agents: list[Process] = field(default_factory=list)

    def order(self, *command: str) -> LaunchOrder:
        """An order for this machine."""
        return an_order(*command, cluster=self.cluster)

    async def start_agent(self) -> Process:
        """Start an agent as a service manager would."""
        said = self.infrastructure
        told = {
            "TRIPLANE_NATS_URL": said.nats_url,
            "TRIPLANE_NATS_USER": said.nats_user or "",
            "TRIPLANE_NATS_PASSWORD": said.nats_password.get_secret_value() if said.nats_password else "",
            "TRIPLANE_AGENT_CLUSTER": self.cluster,
            "TRIPLANE_AGENT_NODE": "n1",
            "TRIPLANE_AGENT_DEVICES": "2",
            "TRIPLANE_AGENT_RUNTIME_DIR": str(self.path / "run"),
            "TRIPLANE_AGENT_REPORT_SECONDS": "0.5",
            "TRIPLANE_AGENT_RUN_AS": "root",
            "TRIPLANE_AGENT_ALLOW_ROOT": "true",
        }
        with (self.path / "agent.log").open("ab") as log:
            agent = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.agent", env={**os.environ, **told}, stdout=log, stderr=log
            )
        self.agents.append(agent)
        return agent

    async def noticed(self, order: LaunchOrder, event: RunEvent) -> ObservationNoticed:
        """Wait until an agent has said that a run started or ended."""

        def found() -> list[ObservationNoticed]:
            return [
                fact for fact in self.wire.facts(ObservationNoticed) if (fact.run, fact.event) == (order.run, event)
            ]

        return (await eventually(found, seconds=30))[0]

    def living(self, order: LaunchOrder) -> list[int]:
        """The processes of a grant."""
        return processes.marked(RuntimeFolder(self.path / "run", "").mark(order.grant))

    def folder(self, order: LaunchOrder) -> RunFolder:
        """The folder of a run."""
        folder = RuntimeFolder(self.path / "run", "").of_grant(order.run, order.epoch)
        assert folder
        return folder

    async def last_notice(self) -> ObservationNoticed:
        """The last notice on the stream: a wire that was cut has not heard it."""
        async with wire(self.servers) as line:
            subject = f"{fact_type(ObservationNoticed)}.{cluster_id(self.cluster)}"
            message = await line.connection.jetstream().get_last_msg("RUNTIME", subject)
        assert message.data
        fact = decode(message.data).data
        assert isinstance(fact, ObservationNoticed)
        return fact

    async def launch(self, order: LaunchOrder) -> None:
        """Start a run as soon as an agent is there."""
        await eventually(lambda: self.wire.facts(ObservationReported), seconds=60)
        assert (await self.ledger.launch(order)).accepted

    async def clear(self) -> None:
        """Leave nothing behind."""
        for agent in self.agents:
            if agent.returncode is None:
                agent.kill()
                await agent.wait()
        folder = RuntimeFolder(self.path / "run", "")
        for run in folder.all_runs():
            if run.instance and processes.lives(run.instance):
                os.kill(run.instance.pid, signal.SIGKILL)
            processes.kill_marked(folder.mark(run.order.grant))


@asynccontextmanager
async def a_machine(servers: Servers, path: Path) -> AsyncIterator[Machine]:
    operator = Infrastructure(
        nats_url=servers.nats_url,
        nats_user=servers.operator_nats["user"],
        nats_password=servers.operator_nats["password"],  # type: ignore[arg-type]
    )
    ledger = Ledger(service=Service("placement", operator, postgres=False))
    ledger.answer()
    async with wire(servers) as line:
        await ledger.service.start()
        machine = Machine(path, await servers.infrastructure("agent"), ledger, line, servers)
        yield machine
        await machine.clear()
        await ledger.service.stop()


@pytest.fixture
async def machine(servers: Servers, tmp_path: Path) -> AsyncIterator[Machine]:
    async with a_machine(servers, tmp_path) as made:
        yield made


async def test_an_agent_killed_in_the_middle_of_a_run_finds_it_again_and_tells_its_end(machine: Machine) -> None:
    agent = await machine.start_agent()
    order = machine.order("sh", "-c", f"while [ ! -e {machine.path}/go ]; do sleep 0.05; done; exit 4")
    await machine.launch(order)
    started = await machine.noticed(order, RunEvent.STARTED)
    agent.kill()
    assert await agent.wait() == -signal.SIGKILL
    await eventually(lambda: machine.living(order))
    await machine.start_agent()
    await eventually(lambda: len(machine.ledger.hellos) == 2, seconds=30)
    assert [(each.grant, each.instance) for each in machine.ledger.hellos[1].holders] == [
        (order.grant, started.instance)
    ]
    (machine.path / "go").touch()
    ended = await machine.noticed(order, RunEvent.ENDED)
    assert ended.exit
    assert ([rank.exit_code for rank in ended.exit.ranks], ended.instance) == ([4], started.instance)
    assert (await machine.ledger.seal(order)).sealed


async def test_an_agent_ends_in_good_order_and_leaves_its_runs(machine: Machine) -> None:
    agent = await machine.start_agent()
    order = machine.order("sleep", "60")
    await machine.launch(order)
    await machine.noticed(order, RunEvent.STARTED)
    agent.terminate()
    assert await agent.wait() == 0
    await eventually(lambda: len(machine.living(order)) == 1)


async def test_a_second_agent_on_one_runtime_folder_ends_with_an_error(machine: Machine) -> None:
    await machine.start_agent()
    await eventually(lambda: machine.wire.facts(ObservationReported), seconds=30)
    second = await machine.start_agent()
    assert await second.wait() == 1
    assert "another agent holds" in (machine.path / "agent.log").read_text()


async def test_what_happens_while_nats_is_away_is_told_when_it_is_back(machine: Machine, servers: Servers) -> None:
    await machine.start_agent()
    order = machine.order("sh", "-c", f"while [ ! -e {machine.path}/go ]; do sleep 0.05; done")
    await machine.launch(order)
    await machine.noticed(order, RunEvent.STARTED)
    servers.kill("nats")
    (machine.path / "go").touch()
    await eventually(lambda: machine.folder(order).evidence("").exit, seconds=30)
    await servers.start("nats")
    run = machine.folder(order)
    await eventually(lambda: run.told("ended"), seconds=30)
    fact = await machine.last_notice()
    assert (fact.run, fact.event) == (order.run, RunEvent.ENDED)
    assert fact.exit
    assert fact.exit.succeeded
