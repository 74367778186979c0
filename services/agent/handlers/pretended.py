"""A whole pretended cluster behind one agent: it answers, claims, notices and reports for every node of it."""

import asyncio
from typing import Final
from uuid import UUID

from pydantic import BaseModel

from libs.clock import Clock, SystemClock
from libs.errors import RefusedError, UnavailableError
from libs.log import get_logger
from libs.orchestrators.pretend import PretendCluster
from libs.orchestrators.pretend_node import PretendNode
from libs.questions import answer, question
from libs.service import Service
from schemas.base import Envelope, Event, fact_type
from schemas.calls import Claim, ClaimAnswer, Find, Hello, Holders, Launch, Logs, Seal, Stop
from schemas.ids import DeviceId, NodeId, fact_id
from schemas.moves import MarkOrder, NodeLook
from schemas.runtime import ObservationNoticed, ObservationReported, ObservedDevice
from schemas.spec.cluster import Cluster, NodeSpec
from services.agent.handlers.asking import greet
from services.agent.settings import Settings

QUESTIONS: Final[dict[str, type[BaseModel]]] = {
    "launch": Launch,
    "find": Find,
    "stop": Stop,
    "seal": Seal,
    "holders": Holders,
    "mark": MarkOrder,
    "look": NodeLook,
    "logs": Logs,
}
AT_ONCE: Final = 50  # hellos on their way at one time
log = get_logger(__name__)


class FastClock:
    """A clock whose seconds pass faster, for runs that would take long."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock, self._speed = clock, speed
        self.now = clock.now

    def monotonic(self) -> float:
        """Return the faster seconds."""
        return self._clock.monotonic() * self._speed


class Pretended:
    """The nodes of a document of backend ``pretend``. They are rebooted whenever this process ends."""

    def __init__(self, service: Service, document: Cluster, settings: Settings, boot: str) -> None:
        self._service, self._settings, self._document = service, settings, document
        self._cluster_id = document.id
        self._specs = {document.node_id(spec.name): spec for spec in document.spec.nodes}
        nodes = [PretendNode(node, spec.name, boot, _devices(document, spec)) for node, spec in self._specs.items()]
        self.cluster = PretendCluster(
            document.id,
            nodes,
            FastClock(SystemClock(), settings.speed),
            claim=self._claim,
            notice=self._take_notice,
        )
        self._incarnation = boot
        self._greeted: set[NodeId] = set()
        self._reported: set[NodeId] = set()
        self._notices: list[Envelope] = []
        self._sequence = 0

    @property
    def alive(self) -> int:
        """How many runs have not ended."""
        return sum(len(node.holders()) for node in self.cluster.nodes.values())

    def open(self) -> None:
        """Answer for every node."""
        for node in self.cluster.nodes:
            for verb, kind in QUESTIONS.items():
                self._service.answer_plain(f"call.node.{node}.{verb}", _Answerer(self.cluster, node, verb, kind))

    async def tick(self) -> None:
        """Let happen what is due, and say what was noticed. Raises UnavailableError; nothing is lost then."""
        await self.cluster.tick()
        said = list(self._notices)
        if said:
            await self._service.publish(said)
            del self._notices[: len(said)]

    async def report(self) -> None:
        """Say the heartbeat of every node that is not silent."""
        nodes = [node for node in self.cluster.nodes.values() if not node.silent]
        await self._service.publish([self._report(node) for node in nodes])
        self._reported.update(node.id for node in nodes)

    async def greet(self) -> None:
        """Tell the ledger of every node once. Raises UnavailableError; those that were not heard are told again."""
        left = [node for node in self.cluster.nodes.values() if node.id not in self._greeted]
        for start in range(0, len(left), AT_ONCE):
            await asyncio.gather(*(self._greet(node) for node in left[start : start + AT_ONCE]))

    async def _greet(self, node: PretendNode) -> None:
        hello = Hello(
            node=node.id,
            cluster=self._cluster_id,
            boot=node.boot,
            incarnation=self._incarnation,
            holders=node.holders(),
        )
        await greet(self._service, hello)
        self._greeted.add(node.id)

    async def _claim(self, claim: Claim) -> ClaimAnswer:
        try:
            body = await self._service.call("call.grant.claim", claim, timeout=self._settings.claim_seconds)
        except RefusedError as error:
            raise UnavailableError(f"no word of the ledger: {error}") from error
        said = answer(ClaimAnswer, body, "call.grant.claim")
        if (said.grant, said.nonce) != (claim.grant, claim.nonce):
            raise UnavailableError("an answer to another question")
        return said

    def _take_notice(self, fact: ObservationNoticed) -> None:
        identity = fact_id(fact_type(ObservationNoticed), f"{fact.node}/{fact.instance}/{fact.event.value}", fact.epoch)
        self._notices.append(self._envelope(fact, fact.node, identity, self._next()))

    def _report(self, node: PretendNode) -> Envelope:
        spec = self._specs[node.id]
        sequence = self._next()
        fact = ObservationReported(
            node=node.id,
            cluster=self._cluster_id,
            cluster_name=self._document.metadata.name,
            node_name=spec.name,
            machine=f"{self._document.metadata.name}/{spec.name}",
            boot=node.boot,
            incarnation=self._incarnation,
            sequence=sequence,
            hello=node.id not in self._reported,
            devices=node.devices,
            holders=node.holders(),
            blind=node.blindness,
            cpu_milli=spec.cpu,
            memory_mib=spec.memory,
            observed_at=self._service.clock.now(),
        )
        identity = fact_id(fact_type(ObservationReported), f"{node.id}/{node.boot}", sequence)
        return self._envelope(fact, node.id, identity, sequence)

    def _next(self) -> int:
        """Return the next number: rising, also over a restart, without a memory of the last."""
        self._sequence = max(self._sequence + 1, int(self._service.clock.now().timestamp() * 1_000_000))
        return self._sequence

    def _envelope(self, fact: Event, node: NodeId, identity: UUID, version: int) -> Envelope:
        return Envelope(
            id=identity,
            type=fact_type(type(fact)),
            source="agent",
            time=self._service.clock.now(),
            scope=self._cluster_id,
            key=node,
            version=version,
            data=fact,
        )


class _Answerer:
    """Answers one verb for one node."""

    def __init__(self, cluster: PretendCluster, node: NodeId, verb: str, kind: type[BaseModel]) -> None:
        self._cluster_id, self._node, self._verb, self._kind = cluster, node, verb, kind

    async def __call__(self, body: bytes) -> BaseModel:
        """Answer a question's bytes."""
        return self._cluster_id.answer(self._node, self._verb, question(self._kind, body))


def _devices(document: Cluster, spec: NodeSpec) -> tuple[ObservedDevice, ...]:
    return tuple(
        ObservedDevice(device=DeviceId(device), index=index, uuid=uuid, model=spec.model, memory_mib=spec.device_memory)
        for device, index, uuid in document.declared_devices(spec)
    )
