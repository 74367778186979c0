"""Nodes that move, on real servers: inventory and placement, and a pretended cluster that fails on command."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from libs.config import Infrastructure
from libs.orchestrators.pretend_node import PretendNode
from libs.service import Service
from schemas.fleet import (
    MoveAdvanced,
    MoveCancelled,
    MoveCompleted,
    MoveInfo,
    MoveRequested,
    MoveState,
    MoveWaited,
    NodeChanged,
    NodeDiscovered,
    NodeInfo,
    NodeOwnerChanged,
)
from schemas.ids import ClusterId, cluster_id, node_id
from schemas.moves import MoveAnswer, MoveCancel, MoveStart
from schemas.reasons import Code, Layer, reason
from schemas.spec.cluster import Cluster
from schemas.workload import GrantIssued, RequestApplied
from services.agent.handlers.pretended import Pretended
from services.agent.settings import Settings as AgentSettings
from services.inventory import app as inventory
from services.inventory.settings import Settings as InventorySettings
from services.placement import app as placement
from services.placement.settings import Settings as PlacementSettings
from tests.support.builders import an_envelope
from tests.support.builders_fleet import a_class, a_cluster, a_node_spec
from tests.support.eventually import eventually
from tests.support.placements import FAST, admitted, ask, cancelled
from tests.support.servers import Servers
from tests.support.wire import Wire, wire

DEMO, OTHER = cluster_id("demo"), cluster_id("other")
N1 = node_id(DEMO, "n1")
DEVICES = 2
REFUSED = reason(Layer.NODE, Code.MARK_REFUSED, "not now")
TOLD = MoveRequested | MoveAdvanced | MoveWaited | MoveCompleted | MoveCancelled
QUICK = {"watch_seconds": 0.1, "move_seconds": 0.1, "move_call_seconds": 2.0, "move_again_seconds": 0.2}


@dataclass
class Moving:
    """The stage of a move. ``node`` fails on command; services come and go by name."""

    servers: Servers
    line: Wire
    node: PretendNode
    inventory_settings: dict[str, float]
    running: dict[str, Service] = field(default_factory=dict)

    async def start(self, name: str) -> None:
        """Start inventory or placement."""
        infrastructure = await self.servers.infrastructure(name)
        service = self._build(name, infrastructure)
        await service.start()
        self.running[name] = service

    async def stop(self, name: str) -> None:
        """Stop inventory or placement."""
        await self.running.pop(name).stop()

    async def move(self, target: ClusterId = OTHER, *, stop: bool = False) -> MoveAnswer:
        """Ask that n1 moves."""
        asked = MoveStart(node=N1, target=target, owner="ada", reason="more batch work", session="order_1", stop=stop)
        return await ask(self.line, "call.move.start", asked, MoveAnswer)

    async def stuck(self, state: MoveState) -> MoveInfo:
        """Let a move stand at a state: by a grant, a refused mark, or a stranger on a device."""
        stranger = {self.node.devices[0].device: "process 4711 (python)"}
        if state is MoveState.REQUESTED:
            await self.line.say(admitted("held"))
            await self.line.wait(GrantIssued)
        self.node.mark_refusal = REFUSED if state is MoveState.HELD else None
        self.node.strangers = stranger if state in {MoveState.MARKED, MoveState.MOVED} else {}
        answer = await self.move()
        assert answer.move
        if state is MoveState.MOVED:
            await self.at(answer.move, MoveState.MARKED, Code.STILL_RUNNING)
            self.node.mark_refusal, self.node.strangers = REFUSED, {}
        return await self.until(lambda info: info.state is state and info.waits is not None, answer.move)

    async def free(self) -> None:
        """Take away what a move was stuck at."""
        self.node.mark_refusal, self.node.strangers = None, {}
        await self.line.say(cancelled("held"))

    async def at(self, move: MoveInfo, state: MoveState, code: Code) -> MoveInfo:
        """Wait until a move stands at a state for this reason."""

        def stands(info: MoveInfo) -> bool:
            return info.state is state and info.waits is not None and info.waits.code is code

        return await self.until(stands, move)

    async def moved(self, target: ClusterId = OTHER) -> MoveInfo:
        """Ask that n1 moves, and wait until it has."""
        answer = await self.move(target)
        assert answer.move, answer
        return await self.until(lambda info: info.state is MoveState.COMPLETED, answer.move)

    async def cancel(self, move: MoveInfo) -> MoveAnswer:
        """Give a move up."""
        asked = MoveCancel(move=move.move, owner="bob", reason="not now")
        return await ask(self.line, "call.move.cancel", asked, MoveAnswer)

    def told(self, move: MoveInfo) -> list[MoveInfo]:
        """Return what was said of a move, by its versions."""
        said = {e.version: e.data.info for e in self.line.heard if e.key == move.move and isinstance(e.data, TOLD)}
        return [said[version] for version in sorted(said)]

    async def until(self, check: Callable[[MoveInfo], object], move: MoveInfo) -> MoveInfo:
        """Wait until the newest word of a move is so, and return it."""

        def found() -> MoveInfo | None:
            told = self.told(move)
            return told[-1] if told and check(told[-1]) else None

        info = await eventually(found, 60)
        assert info
        return info

    def states(self, move: MoveInfo) -> list[MoveState]:
        """Return the states that a move went through, as they were said."""
        states = [info.state for info in self.told(move)]
        return [state for place, state in enumerate(states) if place == 0 or states[place - 1] is not state]

    def newest(self) -> NodeInfo:
        """Return the newest word of n1."""
        words = self.words()
        return words[max(words)]

    def words(self) -> dict[int, NodeInfo]:
        """Return what was said of n1, by version."""
        kinds = NodeDiscovered | NodeChanged | NodeOwnerChanged
        return {e.version: e.data.info for e in self.line.heard if e.key == N1 and isinstance(e.data, kinds)}

    def owners(self) -> list[tuple[ClusterId, int]]:
        """Return the owners that n1 was said to get, with their epochs."""
        return [(fact.info.owned_by, fact.info.owner_epoch) for fact in self.line.facts(NodeOwnerChanged)]

    async def rows(self, service: str, query: str) -> list[tuple[Any, ...]]:
        """Read what a service has written."""
        infrastructure = await self.servers.infrastructure(service)
        connection = await asyncpg.connect(infrastructure.postgres_dsn.get_secret_value())
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()

    async def lines(self) -> dict[str, int]:
        """Count the live lines of the ledger by kind."""
        rows = await self.rows("placement", "SELECT kind, count(*)::int FROM lines WHERE live GROUP BY kind")
        return {str(kind): int(count) for kind, count in rows}

    async def no_line(self) -> bool:
        """Whether the ledger has let go of all: it hears of a new owner after everybody else, or before."""
        return await self.lines() == {}

    def _build(self, name: str, infrastructure: Infrastructure) -> Service:
        if name == "inventory":
            return inventory.build(infrastructure, InventorySettings.model_validate(self.inventory_settings))
        return placement.build(infrastructure, PlacementSettings.model_validate(FAST))


@asynccontextmanager
async def moving(servers: Servers, **settings: float) -> AsyncIterator[Moving]:
    """Run inventory and placement, and the cluster demo with n1; the cluster other has no nodes of its own."""
    demo = a_cluster(a_node_spec("n1", DEVICES), backend="pretend")
    async with AsyncExitStack() as stack:
        line = await stack.enter_async_context(wire(servers))
        agent, node = await _agent(servers, demo)
        stage = Moving(servers, line, node, {**QUICK, **settings})
        for name in ("inventory", "placement"):
            await stage.start(name)
        await agent.start()
        stack.push_async_callback(agent.stop)
        stack.push_async_callback(_stop_all, stage)
        await line.say(an_envelope(a_class(), key="class_h100"))
        await line.say(*(an_envelope(each, key=f"cluster_{each.name}") for each in (demo, a_cluster(name="other"))))
        await eventually(lambda: bool(stage.words()) and stage.newest().reported, 60)
        await eventually(lambda: _known(stage), 60)
        yield stage


async def _known(stage: Moving) -> bool:
    query = "SELECT count(*)::int FROM devices d JOIN nodes n USING (node) WHERE reported"
    return await stage.rows("placement", query) == [(DEVICES,)]


async def _stop_all(stage: Moving) -> None:
    for name in list(stage.running):
        await stage.stop(name)


async def _agent(servers: Servers, demo: RequestApplied) -> tuple[Service, PretendNode]:
    service = Service("agent", await servers.infrastructure("agent"), postgres=False)
    pretended = Pretended(service, Cluster.model_validate(demo.document), AgentSettings(), "boot-1")
    pretended.open()
    service.loop("ticks", pretended.tick, every=0.05)
    service.loop("reports", pretended.report, every=0.2)
    service.loop("greeting", pretended.greet, every=1.0)
    return service, pretended.cluster.nodes[N1]
