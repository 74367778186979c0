"""What health does in a turn: take the facts in, node by node, decide, say it, write down."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from libs.bus.turn import Turn
from libs.log import get_logger
from libs.pg.pool import Connection
from libs.telemetry.metrics import Metrics
from schemas.base import Envelope
from schemas.fleet import NodeChanged, NodeDiscovered, NodeRetired
from schemas.ids import ClusterId, NodeId
from schemas.runtime import ObservationReported
from schemas.workload import GrantIssued, GrantReleased, RequestOrdered
from services.health import store
from services.health.core import Fleet, Node, Said, decide, evolve, judge, say_incident
from services.health.settings import Settings

log = get_logger(__name__)


class Handlers:
    """The turns of health."""

    def __init__(self, settings: Settings) -> None:
        self._policy = settings.policy()
        self._sweep_seconds = settings.sweep_seconds
        self._fleet_is_silent = False

    async def workload(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Hear orders and grants: a node is drained when its last grant is released."""
        facts = [envelope.data for envelope in batch]
        issued = [(fact.grant, part.node) for fact in facts if isinstance(fact, GrantIssued) for part in fact.parts]
        released = [(fact.grant, fact.node) for fact in facts if isinstance(fact, GrantReleased)]
        await store.note_grants(turn.connection, issued, released)
        await self.hear(turn, [envelope for envelope in batch if not isinstance(envelope.data, GrantIssued)])

    async def hear(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Hear facts that are each about one node."""
        about = [(*_place(envelope), envelope) for envelope in batch]
        await store.ensure(turn.connection, {node: cluster for node, cluster, _ in about if cluster is not None})
        before = await store.load(turn.connection, {node for node, _, _ in about})
        after = dict(before)
        for key, _, envelope in about:
            if key in after:
                node, facts = self._after(after[key], envelope, turn.now)
                after[key] = node
                _say(turn, node, facts, envelope)
        await store.save(turn.connection, before, after)

    async def settle(self, turn: Turn) -> None:
        """Complete the drains of nodes where nothing is granted any more."""
        before = await store.load(turn.connection, await store.settled(turn.connection, self._policy, turn.now))
        after = dict(before)
        for key, node in before.items():
            after[key], facts = decide(node, self._policy, now=turn.now)
            _say(turn, node, facts, None)
        await store.save(turn.connection, before, after)

    async def watch(self, turn: Turn) -> None:
        """Open incidents of nodes that are not heard, and say which are lost."""
        fleet = await self._fleet(turn)
        before = await store.load(turn.connection, await store.silent(turn.connection, self._policy, turn.now))
        after = dict(before)
        for key, node in before.items():
            worse = judge(node, fleet, self._policy, now=turn.now)
            if worse is not None:
                after[key], said = say_incident(node, worse)
                _say(turn, node, [said], None)
        await store.save(turn.connection, before, after)

    async def unanswered(self, turn: Turn) -> Sequence[UUID]:
        """Return the facts about drains that inventory was not heard on."""
        return await store.unanswered(turn.connection, turn.now, seconds=self._sweep_seconds / 2)

    def _after(self, node: Node, envelope: Envelope, now: datetime) -> tuple[Node, tuple[Said, ...]]:
        return decide(evolve(node, envelope, now=now), self._policy, now=now)

    async def _fleet(self, turn: Turn) -> Fleet:
        fleet = await store.fleet(turn.connection, self._policy, turn.now)
        silent = fleet.is_silent(self._policy)
        if silent:
            await store.fleet_was_silent(turn.connection, turn.now)
        self._log_silence(silent, fleet.fallen, fleet.talking)
        return fleet

    def _log_silence(self, silent: bool, fallen: int, talking: int) -> None:
        if silent and not self._fleet_is_silent:
            log.error("too many nodes fell silent together: nothing is escalated", fallen=fallen, talking=talking)
        elif self._fleet_is_silent and not silent:
            log.info("the fleet is heard again", fallen=fallen, talking=talking)
        self._fleet_is_silent = silent


def _place(envelope: Envelope) -> tuple[NodeId, ClusterId | None]:
    """Return the node that a fact is about, and its cluster where the fact tells it."""
    match envelope.data:
        case NodeDiscovered() | NodeChanged() as fact:
            return fact.info.node, fact.info.cluster
        case RequestOrdered() | ObservationReported() | NodeRetired() as fact:
            return fact.node, fact.cluster
        case GrantReleased() as fact:
            return fact.node, None
        case other:
            raise AssertionError(f"health does not listen to {type(other).__name__}")


def _say(turn: Turn, node: Node, facts: Sequence[Said], cause: Envelope | None) -> None:
    for said in facts:
        turn.emit(said.fact, scope=node.cluster, key=said.key, version=said.version, cause=cause)


class Numbers:
    """Health in numbers."""

    def __init__(self, metrics: Metrics) -> None:
        self._incidents = metrics.table("triplane_health_open_incidents", "Incidents not cleared.", ("severity",))
        self._drains = metrics.table("triplane_health_open_drains", "Cordons and drains not lifted.", ("state",))

    async def measure(self, connection: Connection) -> None:
        """Count."""
        incidents, drains = await store.open_now(connection)
        self._incidents.fill(incidents)
        self._drains.fill(drains)
