"""A job on its way to its devices, on real servers: every service and a pretended node, each step held on command."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel
from redis.asyncio import Redis

from libs.bus.calls import PlainAnswerer
from libs.orchestrators.pretend_node import PretendNode
from libs.service import Service
from schemas.base import Envelope
from schemas.calls import Claim, ClaimAnswer, Find
from schemas.ids import NodeId, RunName
from schemas.runtime import ObservationNoticed
from schemas.spec.cluster import Cluster
from schemas.workload import (
    GrantIssued,
    JobAdmitted,
    JobCancelled,
    JobFinished,
    JobRejected,
    Outcome,
    RequestSubmitted,
    RequestWithdrawn,
)
from services.admission import app as admission
from services.admission.settings import Settings as AdmissionSettings
from services.agent.handlers.pretended import QUESTIONS, Pretended
from services.agent.settings import Settings as AgentSettings
from services.dispatch import app as dispatch
from services.dispatch.settings import Settings as DispatchSettings
from services.placement import app as placement
from services.placement.settings import Settings as PlacementSettings
from tests.support.builders import (
    a_demand,
    a_job_id,
    a_node_id,
    a_queue,
    a_submission,
    a_withdrawal,
    an_envelope,
    some_work,
)
from tests.support.builders_fleet import a_cluster, a_node_spec, discovered, fleet_fact
from tests.support.eventually import eventually
from tests.support.placements import FAST
from tests.support.placements import a_cluster as a_told_cluster
from tests.support.servers import Servers
from tests.support.wire import Wire, wire

DEVICES = 8
LEASE_SECONDS = 3  # a slow renewer may write a lease again after its release: it goes by its time to live
SERVICES = ("admission", "placement", "dispatch", "agent")
BUILT = ("admission", "placement", "dispatch")
LEFT = """
SELECT (SELECT count(*) FROM placement.grants WHERE live), (SELECT count(*) FROM placement.lines WHERE live),
       (SELECT count(*) FROM admission.charges WHERE NOT over), (SELECT count(*) FROM dispatch.runs WHERE NOT settled)
"""
KNOWN = "SELECT count(*) FROM placement.devices"
HEARD = "SELECT bool_and(state = 'Over') FROM placement.attempts"


class Left(NamedTuple):
    """What is not over anywhere."""

    grants: int = 0
    lines: int = 0
    charges: int = 0
    runs: int = 0
    leases: int = 0
    processes: int = 0


class Story(NamedTuple):
    """What became of a job: its ends with their attempts, and the attempts that were admitted, granted, really run."""

    ends: tuple[tuple[str, int], ...]
    admitted: tuple[int, ...] = ()
    granted: tuple[int, ...] = ()
    ran: tuple[int, ...] = ()


class Sought(NamedTuple):
    """A node was asked what became of these runs, at a time by the loop's clock."""

    node: NodeId
    at: float
    runs: tuple[RunName, ...]


class Door:
    """What goes through waits while it is shut. ``came`` counts what has arrived."""

    def __init__(self) -> None:
        self.came = 0
        self._open = asyncio.Event()
        self._open.set()

    def shut(self) -> None:
        """Let nothing through any more."""
        self._open.clear()

    def open(self) -> None:
        """Let through what waits and what comes."""
        self._open.set()

    async def arrival(self) -> None:
        """Wait until something has come to the door."""
        await eventually(lambda: self.came)

    async def through(self) -> None:
        """Go through, as soon as it is open."""
        self.came += 1
        await self._open.wait()


class SlowNode(Pretended):
    """An agent of a pretended cluster with doors on the way.

    ``launches``, ``seals``: before the node does what it is asked; ``steps``: before runs do anything by themselves;
    ``claims``: before a claim reaches the ledger; ``leaves``: before the ledger's answer reaches the run; ``finds``:
    before a node says what became of its runs. ``sought``: when it was asked that, and of which.
    ``lost``: the notices that get lost; None: none do.
    """

    def __init__(self, service: Service, document: Cluster) -> None:
        super().__init__(service, document, AgentSettings(), "boot-1")
        doors = (Door() for _ in range(6))
        self.launches, self.seals, self.steps, self.claims, self.leaves, self.finds = doors
        self.sought: list[Sought] = []
        self.lost: list[Envelope] | None = None

    @property
    def node(self) -> PretendNode:
        """The first node."""
        return self.cluster.nodes[a_node_id()]

    def open(self) -> None:
        """Answer for the nodes, launches and seals through their doors."""
        for node in self.cluster.nodes:
            for verb, kind in QUESTIONS.items():
                self._service.answer_plain(f"call.node.{node}.{verb}", self._answerer(node, verb, kind))

    def open_doors(self) -> None:
        """Let everything through."""
        for door in (self.launches, self.seals, self.steps, self.claims, self.leaves, self.finds):
            door.open()

    async def tick(self) -> None:
        """Let happen what is due, through the door of steps."""
        await self.steps.through()
        await super().tick()

    def _answerer(self, node: NodeId, verb: str, kind: type[BaseModel]) -> PlainAnswerer:
        door = {"launch": self.launches, "seal": self.seals, "find": self.finds}.get(verb, Door())

        async def answer(body: bytes) -> BaseModel:
            if verb == "find":
                now = asyncio.get_running_loop().time()
                self.sought.append(Sought(node, now, Find.model_validate_json(body).runs))
            await door.through()
            return self.cluster.answer(node, verb, kind.model_validate_json(body))

        return answer

    def _take_notice(self, fact: ObservationNoticed) -> None:
        super()._take_notice(fact)
        if self.lost is not None:
            self.lost.append(self._notices.pop())

    async def _claim(self, claim: Claim) -> ClaimAnswer:
        await self.claims.through()
        said = await super()._claim(claim)
        await self.leaves.through()
        return said


@dataclass
class Launching:
    """The stage: services come by name, the fleet and the queue when they are said."""

    servers: Servers
    line: Wire
    agent: SlowNode
    built: dict[str, Service]
    running: list[Service] = field(default_factory=list)
    withdrawals: int = 0

    async def start(self, *names: str) -> None:
        """Start services that do not run yet."""
        for name in names:
            service = self.built[name]
            if service not in self.running:
                self.running.append(service)
                await service.start()

    async def stop(self) -> None:
        """Open all doors and stop what runs."""
        self.agent.open_doors()
        for service in reversed(self.running):
            await service.stop()

    async def say_queue(self, devices: int = 2 * DEVICES) -> None:
        """Declare the queue, by itself with room for an attempt that is over and not proved to be."""
        await self.line.say(an_envelope(a_queue(h100=devices), key="queue_main"))

    async def say_fleet(self) -> None:
        """Say the cluster and its nodes."""
        nodes = [node.name for node in self.agent.cluster.nodes.values()]
        told = [fleet_fact(discovered(name, devices=DEVICES), a_node_id(name)) for name in nodes]
        await self.line.say(a_told_cluster(), *told)
        if self.built["placement"] in self.running:
            await eventually(self._knows_devices)

    async def submit(
        self, name: str = "train", *command: str, devices: int = DEVICES, replicas: int = 1, retries: int = 0
    ) -> None:
        """Ask for a job, by itself on all devices of a node; it sleeps for ever unless something else is said."""
        work = some_work(*(command or ("sleep", "infinity")), grace_seconds=1)
        demand = a_demand(devices, replicas=replicas)
        await self._say(a_submission(name, retries=retries, demand=demand, work=work), 1)

    async def withdraw(self, name: str = "train") -> None:
        """Say that the user cancels."""
        self.withdrawals += 1
        await self._say(a_withdrawal(name), 1 + self.withdrawals)

    async def cancel(self) -> None:
        """Let the user cancel, and wait until the job is cancelled and the ledger, if it is there, has heard of it."""
        await self.withdraw()
        await self.line.wait(JobCancelled)
        if self.built["placement"] in self.running:
            await eventually(self._heard)

    async def settle(self) -> None:
        """Open everything, start everything, and wait until the devices have served another job."""
        self.agent.node.deaf = False
        self.agent.open_doors()
        await self.start(*SERVICES)
        await eventually(self._nothing_left, 30, every=0.1)
        await self.say_queue()
        await self.say_fleet()
        await self.submit("next", "true")
        await eventually(lambda: self._ends("next"), 30)
        await eventually(self._nothing_left, 30, every=0.1)
        assert [fact.outcome for fact in self.line.facts(JobFinished)][-1:] == [Outcome.SUCCEEDED]

    async def left(self) -> Left:
        """Count what is not over."""
        counts = await self._row(LEFT)
        async with Redis.from_url(self.servers.operator_redis_url) as redis:
            leases = len(await redis.keys("dev:*"))
        return Left._make([*counts, leases, self.agent.alive])

    def story(self) -> Story:
        """Return what became of the job."""
        runs = self.agent.node.runs.values()
        ran = [run.order.attempt for run in runs if run.order.job == a_job_id() and run.started_at is not None]
        return Story(self._ends("train"), self._attempts(JobAdmitted), self._attempts(GrantIssued), tuple(ran))

    async def _heard(self) -> bool:
        (is_over,) = await self._row(HEARD)
        return bool(is_over)

    async def _knows_devices(self) -> bool:
        """Say whether the ledger has heard of all nodes: for what never fits into those it knows it waits no longer."""
        (known,) = await self._row(KNOWN)
        return bool(known == DEVICES * len(self.agent.cluster.nodes))

    async def _row(self, query: str) -> tuple[Any, ...]:
        connection = await self.servers.foundation.postgres.connect()
        try:
            return tuple(await connection.fetchrow(query) or ())
        finally:
            await connection.close()

    async def _nothing_left(self) -> bool:
        left = await self.left()
        assert left == Left(), left
        return True

    def _ends(self, name: str) -> tuple[tuple[str, int], ...]:
        kinds = JobCancelled | JobFinished | JobRejected
        facts = {e.id: e.data for e in self.line.heard if isinstance(e.data, kinds)}.values()
        return tuple((type(fact).__name__, fact.attempt) for fact in facts if fact.job == a_job_id(name))

    def _attempts(self, kind: type[Any]) -> tuple[int, ...]:
        return tuple(fact.attempt for fact in self.line.facts(kind) if fact.job == a_job_id())

    async def _say(self, fact: RequestSubmitted | RequestWithdrawn, version: int) -> None:
        await self.line.say(an_envelope(fact, key=fact.job, version=version))


@asynccontextmanager
async def launching(
    servers: Servers,
    *,
    nodes: int = 1,
    backoff_seconds: int = 0,
    dispatches: Mapping[str, float] | None = None,
    **placements: float,
) -> AsyncIterator[Launching]:
    """Build all over so many nodes, placement and dispatch with these settings besides; start nothing."""
    infrastructure = {name: await servers.infrastructure(name) for name in SERVICES}
    service = Service("agent", infrastructure["agent"], postgres=False)
    specs = [a_node_spec(f"n{number}", DEVICES) for number in range(1, nodes + 1)]
    cluster = a_cluster(*specs, backend="pretend")
    agent = SlowNode(service, Cluster.model_validate(cluster.document))
    agent.open()
    service.loop("ticks", agent.tick, every=0.05)
    service.loop("reports", agent.report, every=0.5)
    service.loop("greeting", agent.greet, every=1.0)
    waits = {**FAST, "lease_seconds": LEASE_SECONDS, **placements}
    quick = {"work_seconds": 0.1, "look_seconds": 0.3, "call_seconds": 0.5, "apart_seconds": 0, **(dispatches or {})}
    built = {
        "admission": admission.build(
            infrastructure["admission"], AdmissionSettings(clock_seconds=0.1, backoff_seconds=backoff_seconds)
        ),
        "placement": placement.build(infrastructure["placement"], PlacementSettings.model_validate(waits)),
        "dispatch": dispatch.build(infrastructure["dispatch"], DispatchSettings.model_validate(quick)),
        "agent": service,
    }
    async with wire(servers) as line:
        stage = Launching(servers, line, agent, built)
        try:
            yield stage
        finally:
            await stage.stop()
