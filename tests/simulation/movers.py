"""People who move nodes there and back, change their minds, and ask twice; and neighbours who slip in meanwhile."""

from collections.abc import Callable
from typing import Final

from libs.orchestrators.pretend_node import PretendNode, kept_off
from schemas.ids import ClusterId, MoveId, NodeId
from schemas.moves import MoveAnswer, MoveCancel, MoveStart
from schemas.reasons import Code, Layer, reason
from tests.simulation.guests import start_native
from tests.simulation.network import Reply
from tests.simulation.stage import Stage

AT_ONCE: Final = 2  # moves under way; a third person gives up one of theirs instead
ANSWER_SECONDS: Final = 5.0
HOME_SECONDS: Final = 10.0


class Movers:
    """All of them. ``moved``: how often of 12 s somebody has a wish; None: the dice say, and in some worlds nobody."""

    def __init__(self, stage: Stage, moved: float | None = None) -> None:
        self._stage, self._weather = stage, stage.ground.weather
        self._dice = self._weather.dice_of("move")
        self._often = self._dice.choice((0.0, 0.3, 1.0)) if moved is None else moved
        self._neighbours = 0

    def act(self) -> bool:
        """Ask for a move, for the same again, or that one be given up."""
        if self._dice.random() >= self._often:
            return False
        open_ = list(self._stage.inventory.store.state.view.moves.values())
        roll = self._dice.random()
        if open_ and (roll < 0.25 or len(open_) >= AT_ONCE):
            self._cancel(self._dice.choice(open_).info.move)
        elif open_ and roll < 0.4:
            info = self._dice.choice(open_).info
            self._weather.struck["move asked twice"] += 1
            self._start(info.node, info.target, stop=self._dice.random() < 0.5)
        else:
            self._begin()
        return True

    def refuse_marks(self) -> Callable[[], None]:
        """Let a node refuse every mark; returns what ends it."""
        node = self._some_node("stubborn")
        node.mark_refusal = reason(Layer.NODE, Code.MARK_REFUSED, "the runtime folder is full")
        return lambda: setattr(node, "mark_refusal", None)

    def slip_in(self) -> PretendNode | None:
        """Let a job of the scheduler that may start work on a node take devices, as its own users ask; None: none can.

        It obeys its marks, and no other word of ours. Who was never told of a node does not know that it is there.
        """
        node, dice = self._some_node("neighbour"), self._weather.dice_of("neighbour")
        home = next(site.spec.id for site in self._stage.sites if node.id in site.cluster.nodes)
        able = [cluster for cluster in sorted({home, *node.marks}) if kept_off(node, cluster) is None]
        self._neighbours += 1
        if not able or not start_native(node, dice, 10_000 + self._neighbours, dice.choice(able)):
            return None
        return node

    def bring_home(self) -> None:
        """Let people ask, until it is so, that each node be its own cluster's again: so all wishes find room."""
        gone = {node for site in self._stage.sites for node in site.gone}

        def look() -> bool:
            view = self._stage.inventory.store.state.view
            away = [n for n in view.nodes.values() if n.owned_by != n.cluster and n.id not in {*gone, *view.moves}]
            for node in away:
                self._start(node.id, node.cluster, stop=False)
            self._stage.ground.timeline.after(HOME_SECONDS, look)
            return bool(away)

        look()

    def _begin(self) -> None:
        nodes = self._stage.inventory.store.state.view.nodes
        away = [node.id for node in nodes.values() if node.owned_by != node.cluster]
        node = nodes[self._dice.choice(away if away and self._dice.random() < 0.5 else sorted(nodes))]
        other = next(site.spec.id for site in self._stage.sites if site.spec.id != node.owned_by)
        self._start(node.id, other, stop=self._dice.random() < 0.5)
        if self._dice.random() < 0.4:
            self._later(self._dice.choice((0.5, 2.0, 6.0, 20.0)), lambda: self._back(node.id, node.owned_by))

    def _back(self, node: NodeId, home: ClusterId) -> None:
        self._weather.struck["move back at once"] += 1
        self._start(node, home, stop=self._dice.random() < 0.5)

    def _start(self, node: NodeId, target: ClusterId, *, stop: bool) -> None:
        asked = MoveStart(node=node, target=target, owner="ada", reason="tuesday", session="s1", stop=stop)

        def arrive(reply: Reply[MoveAnswer]) -> None:
            self._stage.moves.start(asked, reply)

        self._stage.ground.network.ask(arrive, _hear, timeout_seconds=ANSWER_SECONDS)

    def _cancel(self, move: MoveId) -> None:
        asked = MoveCancel(move=move, owner="eve", reason="wednesday")

        def arrive(reply: Reply[MoveAnswer]) -> None:
            self._stage.moves.cancel(asked, reply)

        self._stage.ground.network.ask(arrive, _hear, timeout_seconds=ANSWER_SECONDS)

    def _some_node(self, kind: str) -> PretendNode:
        """Prefer a node that is on its way."""
        dice = self._weather.dice_of(kind)
        nodes = {node.id: node for site in self._stage.sites for node in site.cluster.nodes.values()}
        open_ = sorted(self._stage.inventory.store.state.view.moves)
        return nodes[dice.choice(open_ if open_ and dice.random() < 0.7 else sorted(nodes))]

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def act() -> bool:
            if not self._weather.calm:
                action()
            return not self._weather.calm

        self._stage.ground.timeline.after(seconds, act)


def _hear(answer: MoveAnswer | None) -> None:
    """What is refused stays undone, and who hears nothing looks some other day."""
    del answer
