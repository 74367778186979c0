"""One shim with a doorkeeper in the agent's place, so that the shim is tested by itself."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schemas.calls import LaunchOrder
from schemas.workload import ExitRecord
from services.agent.core.orders import Owner, Place, shim_order
from services.agent.core.runs import RunState, devices_of, state_of
from services.agent.store import processes
from services.agent.store.folder import RunFolder, RuntimeFolder, folder_name
from tests.support.eventually import eventually

BOOT = "boot-1"


@dataclass
class Doorkeeper:
    """Answers every question of a shim with ``answer``; {} means that it gives none yet."""

    answer: dict[str, Any] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hear one question, answer it, hear what follows."""
        question = json.loads(await reader.readline())
        self.asked.append(question)
        answer = {"start": question["instance"]} if self.answer is None else self.answer
        if answer:
            writer.write(json.dumps(answer).encode() + b"\n")
            self.told += [json.loads(line) async for line in reader]
        writer.close()


@dataclass
class ShimNode:
    """A runtime folder and the shims in it."""

    folder: RuntimeFolder
    place: Place
    door: Doorkeeper

    def launch(self, order: LaunchOrder, **changes: Any) -> RunFolder:
        """Start a shim for an order, with changes to its place."""
        name = folder_name(order.run, order.epoch)
        visible = {device: str(number) for number, device in enumerate(devices_of(order))}
        scratch = str(self.folder.make_scratch(name, changes.get("owner", self.place.owner)))
        place = replace(self.place, mark=self.folder.mark(order.grant), scratch=scratch, visible=visible, **changes)
        run = self.folder.create(name, shim_order(order, place, now=datetime.now(UTC)))
        os.close(processes.start_shim(run.path))
        return run

    def state(self, run: RunFolder) -> RunState:
        """Where the run is."""
        return state_of(run.evidence(BOOT))

    async def becomes(self, run: RunFolder, state: RunState) -> None:
        """Wait until the run is there."""
        await eventually(lambda: self.state(run) is state)

    async def exit(self, run: RunFolder) -> ExitRecord:
        """Wait for the end of the run and of its shim; return its record."""
        await eventually(lambda: run.evidence(BOOT).exit)
        await eventually(lambda: not run.evidence(BOOT).alive)
        record = run.evidence(BOOT).exit
        assert record
        return record


@asynccontextmanager
async def a_shim_node(path: Path, *, owner: Owner | None = None) -> AsyncIterator[ShimNode]:
    """A node whose agent is a doorkeeper."""
    folder, door = RuntimeFolder(path, BOOT), Doorkeeper()
    folder.open()
    server = await asyncio.start_unix_server(door.serve, path=folder.socket)
    place = Place(
        boot=BOOT,
        mark="",
        device_folder=str(folder.devices),
        agent_socket=str(folder.socket),
        scratch="",
        cgroup=None,
        owner=owner,
        visible={},
        lock_wait_seconds=1.0,
        log_bytes=65_536,
        traceparent="",
    )
    yield ShimNode(folder, place, door)
    server.close()
    for run in folder.all_runs():
        if run.instance and processes.lives(run.instance):
            os.kill(run.instance.pid, signal.SIGKILL)
        processes.kill_marked(folder.mark(run.order.grant))
    folder.close()


def output(run: RunFolder, rank: int = 0) -> str:
    """What a replica wrote and is still kept."""
    files = sorted(run.path.glob(f"output-{rank}.*"), key=lambda path: int(path.suffix[1:]))
    return "".join(path.read_text() for path in files)
