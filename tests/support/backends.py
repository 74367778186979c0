"""One destination in three forms, for one suite: pretended in memory, pretended over NATS, real processes over NATS."""

import os
import pwd
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import BaseModel

from libs.clock import ManualClock
from libs.orchestrators.base import Runs
from libs.orchestrators.local import LocalNodes, LocalRuns
from libs.orchestrators.pretend import PretendCluster
from libs.orchestrators.pretend_node import PretendNode
from libs.orchestrators.script import CODE, SECONDS
from libs.service import Service
from schemas.calls import LaunchOrder, Seal, SealAnswer
from schemas.ids import cluster_id, node_id
from schemas.runtime import ObservationNoticed, ObservedDevice, RunEvent
from services.agent.app import build
from services.agent.handlers.by_hand import by_hand, person
from services.agent.settings import Settings
from services.agent.store import groups, processes
from services.agent.store.folder import RuntimeFolder
from tests.support.builders_agent import an_order, declared
from tests.support.eventually import eventually
from tests.support.ledgers import Book, Ledger, a_seal
from tests.support.servers import Servers
from tests.support.wire import wire

NODES = ("n1", "n2")
DEVICES = 4
DOCUMENT = """
apiVersion: triplane/v1
kind: Cluster
metadata: {name: NAME}
spec:
  backend: pretend
  nodes:
    - {name: n1, devices: 4, model: Virtual GPU}
    - {name: n2, devices: 4, model: Virtual GPU}
"""


@dataclass
class Backend:
    """A destination of two nodes with four devices each, its driver, and the ledger it asks.

    ``until`` lets time pass until something holds; ``heard`` is what was noticed; ``ask_seal`` asks as placement does;
    ``cancel`` is what a person on the node does past Triplane, and returns who that is: None where nobody gets in.
    """

    cluster: str
    runs: Runs
    nodes: LocalNodes
    book: Book
    heard: Callable[[], list[ObservationNoticed]]
    until: Callable[[Callable[[], object]], Awaitable[None]]
    ask_seal: Callable[[Seal], Awaitable[SealAnswer]]
    cancel: Callable[[LaunchOrder], str] | None = None

    def order(self, seconds: float = 0.0, code: int = 0, **fields: Any) -> LaunchOrder:
        """An order for a run that takes so long and ends with this code, real or pretended."""
        command = ("sh", "-c", f"sleep {seconds}; exit {code}")
        return an_order(*command, cluster=self.cluster, env={SECONDS: str(seconds), CODE: str(code)}, **fields)

    async def noticed(self, order: LaunchOrder, event: RunEvent) -> ObservationNoticed:
        """Let time pass until a run was noticed to start or end."""

        def found() -> list[ObservationNoticed]:
            return [fact for fact in self.heard() if (fact.grant, fact.event) == (order.grant, event)]

        await self.until(found)
        return found()[0]

    async def seal(self, order: LaunchOrder, *, stop: bool = False) -> SealAnswer:
        """Revoke a grant and ask for the proof of release."""
        self.book.over.add(order.grant)
        return await self.ask_seal(a_seal(order, stop=stop))


@asynccontextmanager
async def in_memory() -> AsyncIterator[Backend]:
    """A pretended cluster, directly, on a clock that stands still until it is told."""
    name, clock, book = _name(), ManualClock(), Book()
    notices: list[ObservationNoticed] = []
    cluster = PretendCluster(cluster_id(name), some_nodes(name), clock, claim=book.claim, notice=notices.append)

    async def until(check: Callable[[], object]) -> None:
        for _ in range(1_200):
            await cluster.tick()
            if check():
                return
            clock.advance(0.05)
        assert check(), "a minute has passed"

    async def ask_seal(seal: Seal) -> SealAnswer:
        answer = cluster.answer(seal.node, "seal", seal)
        assert isinstance(answer, SealAnswer)
        return answer

    def cancel(order: LaunchOrder) -> str:
        cluster.cancel(order.node, "root")
        return "root"

    runs, nodes = LocalRuns(cluster.ask, timeout_seconds=1), LocalNodes(cluster.ask, timeout_seconds=1)
    yield Backend(name, runs, nodes, book, lambda: notices, until, ask_seal, cancel)


@asynccontextmanager
async def pretended_over_nats(servers: Servers, path: Path) -> AsyncIterator[Backend]:
    """A pretended cluster behind one agent."""
    name = _name()
    (path / "cluster.yaml").write_text(DOCUMENT.replace("NAME", name))
    async with _over_nats(servers, name, [Settings(document=path / "cluster.yaml", runtime_dir=path / "run")]) as made:
        yield made


@asynccontextmanager
async def processes_over_nats(servers: Servers, path: Path) -> AsyncIterator[Backend]:
    """Two agents that start real processes."""
    name = _name()
    settings = [_settings(name, node, path / node) for node in NODES]

    def cancel(order: LaunchOrder) -> str:
        assert sum(by_hand(["cancel", order.run], each).code == 0 for each in settings) == 1
        return person()

    async with _over_nats(servers, name, settings) as made:
        yield replace(made, cancel=cancel)
    for each in settings:
        _clear(each.runtime_dir)


@asynccontextmanager
async def _over_nats(servers: Servers, name: str, settings: Sequence[Settings]) -> AsyncIterator[Backend]:
    """Every service has its own rights, as in production."""
    ledger = Ledger(service=Service("placement", await servers.infrastructure("placement"), postgres=False))
    ledger.answer()
    dispatch = Service("dispatch", await servers.infrastructure("dispatch"), postgres=False)
    inventory = Service("inventory", await servers.infrastructure("inventory"), postgres=False)
    agents = [build(await servers.infrastructure("agent"), each) for each in settings]

    async def ask(subject: str, question: BaseModel, timeout: float) -> bytes:
        return await dispatch.call(subject, question, timeout=timeout)

    async def ask_of_nodes(subject: str, question: BaseModel, timeout: float) -> bytes:
        return await inventory.call(subject, question, timeout=timeout)

    async def ask_seal(seal: Seal) -> SealAnswer:
        body = await ledger.service.call(f"call.node.{seal.node}.seal", seal, timeout=30)
        return SealAnswer.model_validate_json(body)

    async def until(check: Callable[[], object]) -> None:
        assert await eventually(check, seconds=60)

    services = [ledger.service, dispatch, inventory, *agents]
    async with wire(servers) as line:
        for service in services:
            await service.start()
        await until(lambda: len(ledger.hellos) >= len(NODES))
        runs, nodes = LocalRuns(ask, timeout_seconds=10), LocalNodes(ask_of_nodes, timeout_seconds=10)
        yield Backend(name, runs, nodes, ledger, lambda: line.facts(ObservationNoticed), until, ask_seal)
        for service in reversed(services):
            await service.stop()


def some_nodes(cluster: str) -> list[PretendNode]:
    """The two nodes, pretended."""
    return [PretendNode(node_id(cluster_id(cluster), node), node, "boot-1", _devices(cluster, node)) for node in NODES]


def _settings(cluster: str, node: str, path: Path) -> Settings:
    return Settings(
        cluster=cluster,
        node=node,
        devices=DEVICES,
        runtime_dir=path,
        lock_wait_seconds=1,
        clear_wait_seconds=0.3,
        run_as=pwd.getpwuid(os.getuid()).pw_name,
        allow_root=True,
    )


def _devices(cluster: str, node: str) -> tuple[ObservedDevice, ...]:
    return tuple(
        ObservedDevice(device=device, index=index, uuid=device, model="Virtual GPU")
        for index, device in enumerate(declared(DEVICES, cluster, node))
    )


def _clear(path: Path) -> None:
    """Leave no shim and no process of a run behind."""
    folder = RuntimeFolder(path, "")
    for run in folder.all_runs():
        if run.instance and processes.lives(run.instance):
            os.kill(run.instance.pid, signal.SIGKILL)
        processes.kill_marked(folder.mark(run.order.grant))
        group = run.shim_order["cgroup"]
        groups.leave(Path(group) if group else None)
        groups.leave(Path(group).parent if group else None)


def _name() -> str:
    """Draw a cluster's name: control groups are shared by all tests of a machine."""
    return f"c{uuid4().hex[:8]}"
