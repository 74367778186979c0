"""Inventory in memory: what nodes there are, which are silent, marked, or move; with the real core."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import Final
from uuid import UUID

from schemas.base import Envelope
from schemas.fleet import DrainLifted, DrainRequested, MarkEffect, MoveState
from schemas.ids import DrainId, MoveId, NodeId, derive
from schemas.runtime import ObservationReported
from services.inventory.core import (
    Cluster,
    GpuClass,
    Move,
    Node,
    Policy,
    Said,
    Standing,
    View,
    decide,
    elapse,
    evolve,
    said,
)
from tests.simulation.ground import Ground
from tests.simulation.host import Host, listen
from tests.simulation.nodes import SiteSpec
from tests.simulation.store import Store, Turn

POLICY: Final = Policy(stale_seconds=10, retire_seconds=30, escalate_seconds=30)
WATCH_SECONDS: Final = 4.0
NUMBERS_SINCE: Final = datetime(2025, 1, 1, tzinfo=UTC)  # as ``deploy.embedded.backup`` has it
Drain = tuple[NodeId, DrainId]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The view, and the drains that stand.

    Of each move that ever was: its last state, when it goes on, its tries. When nodes are to be told whose they are.
    """

    view: View = field(default_factory=View)
    drains: Mapping[Drain, int] = field(default_factory=dict)
    moves: Mapping[MoveId, Move] = field(default_factory=dict)
    next_at: Mapping[MoveId, tuple[datetime, int]] = field(default_factory=dict)
    marks_due: Mapping[NodeId, datetime] = field(default_factory=dict)


FleetTurn = Turn[Fleet]


class Inventory(Host[Fleet]):
    """The process. Operators mark its nodes; who moves them asks ``moves``."""

    def __init__(self, store: Store[Fleet], ground: Ground, sites: Sequence[SiteSpec]) -> None:
        super().__init__(store, ground)
        self.loop(self.watch, WATCH_SECONDS)
        listen([self], "inventory-runtime", [self._heard])
        self.turn(lambda turn: _discover(turn, sites))

    def mark(self, node: NodeId, effect: MarkEffect, dice: Random) -> None:
        """Mark a node."""
        drain = DrainId(derive("drain", dice.random().hex()))

        def work(turn: FleetTurn) -> None:
            fact = DrainRequested(
                drain=drain,
                cluster=turn.state.view.nodes[node].cluster,
                node=node,
                effect=effect,
                owner="ops",
                reason="fans",
                session="s1",
                requested_at=turn.now,
            )
            say(turn, evolve(turn.state.view, fact, version=1, now=turn.now), [node])
            turn.state = replace(turn.state, drains={**turn.state.drains, (node, drain): 1})

        self.survive(lambda: self.turn(work))

    def lift(self, node: NodeId) -> None:
        """Take the marks off a node."""
        if any(marked == node for marked, _ in self.store.state.drains):
            self.survive(lambda: self.turn(lambda turn: self._lift(turn, node)))

    def go_back(self) -> None:
        """Be an older inventory than nodes have heard of: each is told again whose it is (``backup.MARKS_ANEW``)."""
        turn = self.store.turn()
        view, numbers = turn.state.view, int((turn.now - NUMBERS_SINCE).total_seconds())
        nodes = {key: replace(node, moves=max(node.moves + 1, numbers)) for key, node in view.nodes.items()}
        moves = {key: replace(_unmarked(move), number=nodes[key].moves) for key, move in view.moves.items()}
        turn.state = replace(
            turn.state,
            view=replace(view, nodes=nodes, moves=moves),
            moves={**turn.state.moves, **{move.info.move: move for move in moves.values()}},
            marks_due=dict.fromkeys(nodes, turn.now),
        )
        self.store.commit(turn)

    def watch(self) -> bool:
        """Say which nodes went stale; who has not heard for so long cannot say who was silent."""
        broker = self.ground.broker
        if not broker.up or self.timeline.now - broker.up_since < POLICY.stale_seconds:
            return False
        view = self.store.state.view
        if elapse(view, POLICY, now=self.store.clock.now()) == view:
            return False
        return self.turn(lambda turn: say(turn, elapse(turn.state.view, POLICY, now=turn.now), turn.state.view.nodes))

    def _lift(self, turn: FleetTurn, node: NodeId) -> None:
        view = turn.state.view
        drains = dict(turn.state.drains)
        for marked, drain in [key for key in drains if key[0] == node]:
            fact = DrainLifted(
                drain=drain, cluster=view.nodes[node].cluster, node=node, lifted_by="ops", reason="they turn again"
            )
            view = evolve(view, fact, version=2, now=turn.now)
            del drains[marked, drain]
        say(turn, view, [node])
        turn.state = replace(turn.state, drains=drains)

    def _heard(self, turn: FleetTurn, batch: Sequence[Envelope]) -> None:
        for envelope in batch:
            if isinstance(envelope.data, ObservationReported):
                view = evolve(turn.state.view, envelope.data, version=envelope.version, now=turn.now)
                say(turn, view, [envelope.data.node], envelope)


def say(turn: FleetTurn, view: View, nodes: Iterable[NodeId], cause: Envelope | UUID | None = None) -> None:
    """Say what is new of these nodes and of clusters, and keep the view."""
    told: tuple[Said, ...] = tuple(decide(turn.state.view, view, nodes))
    for each in told:
        turn.emit(each.fact, scope=each.cluster, key=each.key, version=each.version, cause=cause)
    turn.state = replace(turn.state, view=said(view, told) if told else view)


def _unmarked(move: Move) -> Move:
    """What was acknowledged before is not true any more."""
    marked = move.info.state is MoveState.MARKED
    return replace(move, info=move.info.model_copy(update={"state": MoveState.HELD})) if marked else move


def _discover(turn: FleetTurn, sites: Sequence[SiteSpec]) -> None:
    clusters = {site.id: Cluster(site.id, site.name, "pretend", ("rack",), generation=1) for site in sites}
    classes = {site.gpu_class: GpuClass(site.gpu_class, site.gpu_class, 1) for site in sites}
    nodes = [
        Node(
            site.node(name),
            site.id,
            name,
            Standing.DECLARED,
            place={"rack": f"r{number // 2}"},
            cpu_milli=8_000,
            memory_mib=64_000,
            devices=site.devices(name, count),
            reported=True,
        )
        for site in sites
        for number, (name, count) in enumerate(site.nodes)
    ]
    say(turn, View(clusters, classes, {node.id: node for node in nodes}), [node.id for node in nodes])
