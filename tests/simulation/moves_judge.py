"""M1 to M5 in the world of a simulation: a move and a grant exclude each other, and no old owner starts anything."""

from collections.abc import Iterator

from libs.orchestrators.pretend_node import PretendNode
from schemas.base import Event
from schemas.calls import FoundState
from schemas.fleet import MoveCancelled, MoveCompleted, MoveInfo, NodeOwnerChanged
from schemas.ids import ClusterId, NodeId
from schemas.workload import GrantConfirmed, GrantIssued
from tests.simulation.guests import NATIVE
from tests.simulation.stage import Stage
from tests.simulation.store import BreachError


class MovesJudge:
    """Looks at what a step said and at the ledger's lines. Raises BreachError."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def check(self) -> None:
        """No slot has the line of a hold and that of a grant (M1)."""
        ledger = self._stage.ledger
        both = ledger.fleet.holds.lines.keys() & ledger.lines.keys() if ledger.fleet.holds.lines else ()
        if both:
            raise BreachError(f"M1: {min(both)} has the line of a hold and of a grant")

    def hear(self, fact: Event) -> None:
        """Check what was just said."""
        match fact:
            case GrantIssued():
                self._check_issue(fact)
            case GrantConfirmed():
                self._check_claim(fact)
            case NodeOwnerChanged():
                self._check_clear(fact)
            case MoveCompleted() | MoveCancelled():
                self._stage.ground.weather.struck[f"move {fact.info.state.value}"] += 1
                self._check_end(fact.info, fact.info.target if isinstance(fact, MoveCompleted) else fact.info.source)
            case _:
                return

    def unfinished(self) -> Iterator[str]:
        """Yield moves that do not end, but those of lost nodes, of which people are told; and holds without a move."""
        gone = {node for site in self._stage.sites for node in site.gone}
        view = self._stage.inventory.store.state.view
        moves = view.moves
        for away in view.nodes.values():
            if away.owned_by != away.cluster and away.id not in {*moves, *gone}:
                yield f"{away.name} is not brought home"
        yield from (
            f"{node} is not told whose it is"
            for node in self._stage.inventory.store.state.marks_due
            if node not in gone
        )
        for node, move in moves.items():
            info = move.info
            if not (node in gone and info.escalated and info.waits is not None):
                why = info.waits.code.value if info.waits else "no reason"
                yield f"{info.node_name} is {info.state.value} on its way to {info.target_name} ({why})"
        for node, hold in self._stage.ledger.fleet.holds.standing.items():
            if node not in moves or moves[node].info.move != hold:
                yield f"the hold of {hold} stays on {node} without a move"

    def _check_issue(self, fact: GrantIssued) -> None:
        """Nothing new is given where a move has said that it comes (M1); what is taken up was given before it."""
        kept = [part.node for part in fact.parts if part.node in self._stage.ledger.fleet.holds.standing]
        if kept and not self._stage.era:
            raise BreachError(f"M1: {fact.grant} is issued on {kept[0]}, which a move holds")

    def _check_claim(self, fact: GrantConfirmed) -> None:
        """Whose devices they are, by owner and owner epoch, and nobody else may start there (M5)."""
        ledger = self._stage.ledger
        grant = ledger.grants[fact.grant]
        part = grant.part(fact.node)
        assert part is not None, fact
        for entry in map(ledger.fleet.devices.__getitem__, fact.devices):
            if (entry.owner, entry.owner_epoch) != (grant.cluster, part.owner_epoch) and not self._stage.era:
                raise BreachError(f"M5: {grant.id} of {grant.cluster}, epoch {part.owner_epoch}, starts on {entry}")
        for run in self._node(fact.node).runs.values():
            if run.instance == fact.instance and run.order.cluster not in {None, grant.cluster}:
                raise BreachError(f"M5: {run.order.run} is {grant.cluster}'s, and {run.order.cluster} starts it")

    def _check_clear(self, fact: NodeOwnerChanged) -> None:
        """The old owner keeps off, and nothing of what it had started is there (M2)."""
        node = self._node(fact.info.node)
        mark = node.marks.get(fact.before)
        if mark is None or not mark.off:
            raise BreachError(f"M2: {node.name} is another's, and {fact.before} may start there: {mark}")
        for run in node.runs.values():
            native = run.order.grant == NATIVE and run.order.cluster != fact.before
            if run.state is FoundState.RUNNING and not native:
                raise BreachError(f"M2: {node.name} is another's while {run.order.run} of {run.order.cluster} is there")

    def _check_end(self, info: MoveInfo, owner: ClusterId) -> None:
        """Whoever owns a node after a move may start there (M3), but where inventory still has to tell the node so."""
        mark = self._node(info.node).marks.get(owner)
        if mark is not None and mark.off and info.node not in self._stage.inventory.store.state.marks_due:
            raise BreachError(f"M3: {info.node_name} is {owner}'s, and it keeps off by {mark}")

    def _node(self, node: NodeId) -> PretendNode:
        return next(site.cluster.nodes[node] for site in self._stage.sites if node in site.cluster.nodes)
