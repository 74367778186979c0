"""A node with its agent and a ledger, on a bus in memory."""

import asyncio
import os
import pwd
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from libs.bus.memory import MemoryBus, MemoryServer
from libs.clock import SystemClock
from libs.config import Infrastructure
from libs.service import Service
from schemas.base import Event
from schemas.calls import LaunchOrder
from schemas.codec import decode
from schemas.runtime import ObservationNoticed, ObservationReported, RunEvent
from services.agent.app import build
from services.agent.settings import Settings
from services.agent.store import groups, processes
from services.agent.store.folder import RunFolder, RuntimeFolder
from tests.support.builders_agent import an_order
from tests.support.eventually import eventually
from tests.support.ledgers import Ledger, a_ledger

E = TypeVar("E", bound=Event)


@dataclass
class World:
    """One node, its agent, the ledger, and what was said. The cluster's name is drawn: control groups are shared."""

    path: Path
    server: MemoryServer
    ledger: Ledger
    infrastructure: Infrastructure
    cluster: str = field(default_factory=lambda: f"c{uuid4().hex[:8]}")
    agent: Service | None = None

    def order(self, *command: str, **fields: Any) -> LaunchOrder:
        """An order for this node."""
        return an_order(*command, cluster=self.cluster, **fields)

    async def start_agent(self, **settings: Any) -> Service:
        """Start the agent, as after a crash when there was one before."""
        (self.path / "boot").write_text(settings.pop("boot", "boot-1"))
        told: dict[str, Any] = {
            "cluster": self.cluster,
            "node": "n1",
            "devices": 8,
            "runtime_dir": self.path / "run",
            "boot_id_file": self.path / "boot",
            "report_seconds": 0.2,
            "lock_wait_seconds": 2.0,
            "clear_wait_seconds": 0.3,
            "claim_seconds": 0.5,
            "run_as": pwd.getpwuid(os.getuid()).pw_name,
            "allow_root": True,  # or what runs write and read in these tests would be closed to them
        }
        self.agent = build(self.infrastructure, Settings(**told | settings), bus=MemoryBus(self.server))
        await self.agent.start()
        return self.agent

    async def stop_agent(self) -> None:
        """End the agent; its shims go on."""
        if self.agent:
            await self.agent.stop()
        self.agent = None

    def said(self, kind: type[E]) -> list[E]:
        """What agents said of one kind, each fact once."""
        stored = self.server.streams["RUNTIME"].messages.values()
        facts = {envelope.id: envelope.data for envelope in (decode(message.body) for message in stored)}
        return [fact for fact in facts.values() if isinstance(fact, kind)]

    async def noticed(self, order: LaunchOrder, event: RunEvent) -> ObservationNoticed:
        """Wait until the agent has said that a run started or ended."""

        def found() -> list[ObservationNoticed]:
            of_run = (fact for fact in self.said(ObservationNoticed) if fact.run == order.run)
            return [fact for fact in of_run if (fact.event, fact.epoch) == (event, order.epoch)]

        return (await eventually(found))[0]

    async def next_report(self) -> ObservationReported:
        """Wait for a report that begins after this moment."""
        count = len(self.said(ObservationReported))
        await eventually(lambda: len(self.said(ObservationReported)) > count + 1)
        return self.said(ObservationReported)[-1]

    def run_folder(self, order: LaunchOrder) -> RunFolder:
        """The folder of a run."""
        folder = RuntimeFolder(self.path / "run", "").of_grant(order.run, order.epoch)
        assert folder
        return folder

    def mark(self, order: LaunchOrder) -> str:
        """What the processes of a grant are told by."""
        return RuntimeFolder(self.path / "run", "").mark(order.grant)

    def living(self, order: LaunchOrder) -> list[int]:
        """The processes of a grant."""
        return processes.marked(self.mark(order))

    async def clear(self) -> None:
        """Leave nothing behind."""
        await self.stop_agent()
        folder = RuntimeFolder(self.path / "run", "")
        for run in folder.all_runs():
            if run.instance and processes.lives(run.instance):
                os.kill(run.instance.pid, signal.SIGKILL)
            processes.kill_marked(folder.mark(run.order.grant))
            group = run.shim_order["cgroup"]
            groups.leave(Path(group) if group else None)
            groups.leave(Path(group).parent if group else None)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A node whose agent is not yet started, and a ledger that answers."""
    server, infrastructure = MemoryServer(SystemClock()), Infrastructure()
    ledger = a_ledger(server, infrastructure)
    ledger.answer()
    await ledger.service.start()
    made = World(tmp_path, server, ledger, infrastructure)
    yield made
    if (tmp_path / "run" / "runs").exists():
        await made.clear()
    await ledger.service.stop()
    await asyncio.sleep(0)
