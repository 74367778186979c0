"""Placement under test: replicas of the service in this process, a fleet said to it, and agents that answer."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import asyncpg
from nats.aio.msg import Msg
from pydantic import BaseModel

from libs.bus.jetstream import JetStreamBus
from libs.config import Infrastructure
from libs.service import Service
from schemas.base import Envelope
from schemas.calls import (
    Claim,
    ClaimAnswer,
    HeldRun,
    Hello,
    HelloAnswer,
    Holders,
    HoldersAnswer,
    LaunchOrder,
    Seal,
    SealAnswer,
)
from schemas.fleet import ClusterDiscovered, DeviceInfo, Mark, NodeChanged, NodeInfo, NodeOwnerChanged
from schemas.ids import (
    ClusterId,
    DeviceId,
    JobId,
    NodeId,
    cluster_id,
    device_id,
    job_id,
    move_id,
    node_id,
    run_name,
)
from schemas.moves import TransferDrop, TransferDropAnswer, TransferHold, TransferHoldAnswer
from schemas.reasons import Code, Layer, reason
from schemas.runtime import ObservationReported
from schemas.workload import Demand, ExitRecord, GrantIssued, GrantRefused, JobAdmitted, JobCancelled, RunSucceeded
from services.placement.app import build
from services.placement.settings import Settings
from tests.support.builders import ACME, NOON, a_demand, an_envelope, at, some_work
from tests.support.eventually import eventually
from tests.support.wire import Wire

CLUSTER, OTHER = cluster_id("demo"), cluster_id("other")
FAST = {
    "recovery_seconds": 0.2,
    "cycle_seconds": 0.2,
    "deadline_seconds": 0.2,
    "late_start_grace_seconds": 0.0,
    "seal_seconds": 0.1,
    "renew_seconds": 0.2,
    "whole_look_seconds": 0,
}
A = TypeVar("A", bound=BaseModel)


@asynccontextmanager
async def placement(
    infrastructure: Infrastructure, replicas: int = 1, **settings: float
) -> AsyncIterator[list[Service]]:
    """Run so many replicas of placement with short waits; they have heard what was said of the fleet before."""
    chosen = Settings.model_validate({**FAST, **settings})
    async with AsyncExitStack() as stack:
        services = [build(infrastructure, chosen) for _ in range(replicas)]
        for service in services:
            await service.start()
            stack.push_async_callback(service.stop)
        await eventually(lambda: _has_heard_the_fleet(services[0]))
        yield services


async def _has_heard_the_fleet(service: Service) -> bool:
    """Say whether it is in the ledger: a job that never fits into what is known there waits no longer."""
    assert isinstance(service.bus, JetStreamBus)
    info = await service.bus.client.jetstream().consumer_info("FLEET", "placement-fleet")
    return (info.num_pending, info.num_ack_pending) == (0, 0)


@asynccontextmanager
async def ledger(infrastructure: Infrastructure) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Open the ledger beside the service."""
    connection = await asyncpg.connect(infrastructure.postgres_dsn.get_secret_value())
    try:
        yield connection
    finally:
        await connection.close()


def a_node_of(
    name: str, devices: int = 8, *, version: int = 1, marks: Sequence[Mark] = (), stale: bool = False, **place: str
) -> Envelope:
    """Say a node of h100 devices whole."""
    info = an_info_of(name, devices, marks=tuple(marks), stale=stale, place=place)
    return an_envelope(NodeChanged(info=info), key=info.node, version=version, scope=CLUSTER)


def owned_by(owner: ClusterId, owner_epoch: int, name: str, devices: int = 8, *, version: int) -> Envelope:
    """Say that another destination owns a node of h100 devices from an owner epoch on."""
    info = an_info_of(name, devices, owner=owner, owner_name="other", owner_epoch=owner_epoch)
    fact = NodeOwnerChanged(info=info, before=CLUSTER, move=move_id(info.node, owner_epoch - 1))
    return an_envelope(fact, key=info.node, version=version, scope=CLUSTER)


def an_info_of(name: str, devices: int = 8, **more: Any) -> NodeInfo:
    """A node of h100 devices of the cluster demo, whole."""
    return NodeInfo(
        node=node_id(CLUSTER, name),
        cluster=CLUSTER,
        cluster_name="demo",
        name=name,
        devices=tuple(
            DeviceInfo(device=device, index=index, uuid=f"GPU-{name}-{index}", model="H100", gpu_class="h100")
            for index, device in enumerate(devices_of(name, devices))
        ),
        cpu_milli=64_000,
        memory_mib=512_000,
        reported=True,
        **more,
    )


def a_cluster() -> Envelope:
    """Say the cluster demo with blocks and racks."""
    fact = ClusterDiscovered(cluster=CLUSTER, name="demo", backend="local", levels=("block", "rack"))
    return an_envelope(fact, key=CLUSTER, scope=CLUSTER)


def devices_of(name: str, count: int) -> tuple[DeviceId, ...]:
    """The ids of a node's devices."""
    node = node_id(CLUSTER, name)
    return tuple(device_id(node, f"GPU-{name}-{index}") for index in range(count))


def admitted(
    name: str, devices: int = 1, *, attempt: int = 1, version: int = 3, demand: Demand | None = None, after: float = 0
) -> Envelope:
    """Say that an attempt may be placed."""
    job = a_job(name)
    fact = JobAdmitted(
        job=job,
        attempt=attempt,
        tenant=ACME,
        name=name,
        queue="main",
        priority=0,
        gpu_class="h100",
        demand=demand or a_demand(devices),
        work=some_work(grace_seconds=1),
        queued_at=at(after),
    )
    return an_envelope(fact, key=job, version=version)


def cancelled(name: str, *, attempt: int = 1, version: int = 9) -> Envelope:
    """Say that a job was cancelled."""
    job = a_job(name)
    fact = JobCancelled(job=job, attempt=attempt, tenant=ACME, cancelled_by="ada")
    return an_envelope(fact, key=job, version=version)


def run_ended(grant: GrantIssued) -> Envelope:
    """Say that the run of a grant succeeded."""
    run = f"{grant.job}-a{grant.attempt}"
    fact = RunSucceeded.model_validate({**grant.model_dump(), "run": run, "ended_at": NOON})
    return an_envelope(fact, key=run, version=5)


def a_report(name: str, *, boot: str = "boot-1", sequence: int = 1, blind: bool = False) -> Envelope:
    """Say a heartbeat."""
    node = node_id(CLUSTER, name)
    fact = ObservationReported(
        node=node,
        cluster=CLUSTER,
        cluster_name="demo",
        node_name=name,
        machine=name,
        boot=boot,
        incarnation="agent-1",
        sequence=sequence,
        hello=sequence == 1,
        devices=(),
        holders=(),
        blind=reason(Layer.NODE, Code.NODE_BLIND) if blind else None,
        observed_at=NOON,
    )
    return an_envelope(fact, key=node, version=sequence, scope=CLUSTER)


def a_job(name: str) -> JobId:
    """The id of a job by its name."""
    return job_id(ACME, name, 1)


async def ask(line: Wire, subject: str, question: BaseModel, answer: type[A]) -> A:
    """Ask placement and return its answer."""
    reply = await line.connection.request(subject, question.model_dump_json().encode(), timeout=30)
    return answer.model_validate_json(reply.data)


async def claim(line: Wire, grant: GrantIssued, part: int = 0, /, **changed: Any) -> ClaimAnswer:
    """Claim a part on the devices that were granted, unless said otherwise."""
    return await ask(line, "call.grant.claim", a_claim(grant, part, **changed), ClaimAnswer)


def a_claim(grant: GrantIssued, part: int = 0, /, **changed: Any) -> Claim:
    """The claim of a part."""
    held = grant.parts[part]
    fields: dict[str, Any] = {
        "grant": grant.grant,
        "epoch": grant.epoch,
        "node": held.node,
        "cluster": grant.cluster,
        "boot": "boot-1",
        "instance": "instance-1",
        "nonce": "nonce-1",
        "devices": tuple(device.device for device in held.devices),
    }
    return Claim.model_validate(fields | changed)


def a_run_of(grant: GrantIssued, part: int = 0, *, instance: str = "instance-1") -> HeldRun:
    """What the node of a part says that it runs."""
    held = grant.parts[part]
    order = LaunchOrder(
        run=run_name(grant.job, grant.attempt),
        grant=grant.grant,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        name=grant.name,
        queue=grant.queue,
        node=held.node,
        replicas=held.replicas,
        world_size=grant.world_size,
        master_addr=held.node_name,
        master_port=20_000,
        work=grant.work,
        start_deadline=grant.start_deadline,
        cluster=grant.cluster,
    )
    return HeldRun(instance=instance, order=order)


async def hold(
    line: Wire, name: str, *, move: int = 1, owner_epoch: int = 1, source: ClusterId = CLUSTER, stop: bool = False
) -> TransferHoldAnswer:
    """Ask for the slots of a node as inventory does for its move."""
    node = node_id(CLUSTER, name)
    asked = TransferHold(
        move=move_id(node, move),
        node=node,
        source=source,
        owner_epoch=owner_epoch,
        stop=stop,
        owner="ada",
        reason="moves to other: more batch work",
        session="order_1",
    )
    return await ask(line, "call.grant.hold", asked, TransferHoldAnswer)


async def drop_hold(line: Wire, name: str, *, move: int = 1, owner_epoch: int = 1) -> TransferDropAnswer:
    """Give the slots back, as inventory does when a move is given up."""
    node = node_id(CLUSTER, name)
    asked = TransferDrop(
        move=move_id(node, move), node=node, owner_epoch=owner_epoch, owner="ada", reason="no", session="order_1"
    )
    return await ask(line, "call.grant.drop", asked, TransferDropAnswer)


async def hello(
    line: Wire, name: str, *, boot: str = "boot-1", incarnation: str = "agent-1", **more: Any
) -> HelloAnswer:
    """Say hello as the agent of a node, until the ledger has taken the boot."""
    said = await hello_once(line, name, boot=boot, incarnation=incarnation, **more)
    while said.boots is not None:
        said = await hello_once(line, name, boot=boot, incarnation=incarnation, **more, boots=said.boots)
    return said


async def hello_once(line: Wire, name: str, *, boot: str, incarnation: str, **more: Any) -> HelloAnswer:
    """Say one hello, which may be one that was long on its way."""
    fields = {
        "node": node_id(CLUSTER, name),
        "cluster": CLUSTER,
        "boot": boot,
        "incarnation": incarnation,
        "holders": (),
    }
    return await ask(line, "call.grant.hello", Hello.model_validate(fields | more), HelloAnswer)


@dataclass
class Agents:
    """Answers the seals of all nodes. ``busy``: nodes that give none yet; ``exit``: the record that they give.

    ``runs``: what a node says that it runs; ``mute``: nodes that do not say it.
    """

    line: Wire
    busy: set[NodeId] = field(default_factory=set)
    exit: ExitRecord | None = None
    asked: list[Seal] = field(default_factory=list)
    lies: dict[str, Any] = field(default_factory=dict)
    runs: dict[NodeId, tuple[HeldRun, ...]] = field(default_factory=dict)
    mute: set[NodeId] = field(default_factory=set)

    async def tell(self, message: Msg) -> None:
        """Say what a node runs."""
        node = Holders.model_validate_json(message.data).node
        if node not in self.mute:
            answer = HoldersAnswer(node=node, boot="boot-1", ready=True, runs=self.runs.get(node, ()))
            await message.respond(answer.model_dump_json().encode())

    async def answer(self, message: Msg) -> None:
        """Answer one seal as an agent would that has looked."""
        seal = Seal.model_validate_json(message.data)
        self.asked.append(seal)
        sealed = seal.node not in self.busy
        answer = SealAnswer(
            grant=seal.grant,
            epoch=seal.epoch,
            node=seal.node,
            revocation=seal.revocation,
            sealed=sealed,
            boot="boot-1",
            devices=seal.devices,
            exit=self.exit if sealed else None,
            reason=None if sealed else reason(Layer.NODE, Code.STILL_RUNNING),
            observed_at=datetime.now(UTC),
        )
        await message.respond(answer.model_copy(update=self.lies).model_dump_json().encode())


@asynccontextmanager
async def agents(line: Wire) -> AsyncIterator[Agents]:
    """Stand in for the agents of all nodes."""
    standing = Agents(line)
    subscription = await line.connection.subscribe("call.node.*.seal", cb=standing.answer)
    telling = await line.connection.subscribe("call.node.*.holders", cb=standing.tell)
    await line.connection.flush()
    try:
        yield standing
    finally:
        await subscription.unsubscribe()
        await telling.unsubscribe()


async def refusal(line: Wire, code: Code) -> GrantRefused:
    """Wait for a refusal with this code, and return the last; before the fleet is known there may be others."""

    def found() -> list[GrantRefused]:
        return [fact for fact in line.facts(GrantRefused) if fact.reason.code is code]

    return (await eventually(found))[-1]


async def say_fleet(line: Wire, *nodes: str, devices: int = 8) -> None:
    """Say a cluster with these nodes."""
    await line.say(a_cluster(), *(a_node_of(name, devices) for name in nodes))
