"""What placement does in a turn after its ledger went back, on the ledger in memory, with the real core (R12)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from libs.errors import ConflictError
from schemas.calls import HoldersAnswer
from schemas.ids import GrantId, NodeId
from schemas.reasons import Code, Layer, reason
from services.placement.core.grant import Grant, Step, confirm, issue
from services.placement.core.recovery import Forgotten, Rebuilt, by_grant, rebuilt
from services.placement.handlers.recovery import FORGOTTEN, _claimed, _superseding
from services.placement.store.changes import Action, chained, revoking
from tests.simulation.ledger import Ledger
from tests.simulation.store import Turn

LedgerTurn = Turn[Ledger]


class Takes(Protocol):
    """Whoever does actions on grants and says what follows."""

    def take(self, turn: LedgerTurn, actions: Mapping[GrantId, Action]) -> None:
        """Do each action on its grant."""

    def take_steps(self, turn: LedgerTurn, held: Mapping[GrantId, Grant], steps: Mapping[GrantId, Step]) -> None:
        """Write what was decided of these grants, and say it."""


def told(desk: Takes, turn: LedgerTurn, answers: Sequence[HoldersAnswer]) -> None:
    """Note what nodes told; a grant that the ledger holds as Issued is Claimed by what runs of it."""
    turn.state.fleet.note_boots((answer.node, answer.boot) for answer in answers if answer.runs)
    turn.state.recovery.keep(answers, turn.state.grants)
    runs = [(answer, run) for answer in answers for run in answer.runs]
    held = turn.state.load({run.order.grant for _, run in runs})
    steps: dict[GrantId, Step] = {}
    for answer, run in runs:
        if run.order.grant in held:
            before = steps.get(run.order.grant, Step(held[run.order.grant]))
            after = _claimed(before.grant, answer, run, turn.now)
            steps[run.order.grant] = Step(after.grant, before.facts + after.facts)
    desk.take_steps(turn, held, steps)
    turn.state.recovery.note_told([answer.node for answer in answers], turn.now)


def take_up(desk: Takes, turn: LedgerTurn) -> None:
    """Take up what nodes run: what an attempt waits for at once, what nobody knows after the lift."""
    for parts in by_grant(_forgotten(turn.state, strangers=False)):
        grant = rebuilt(parts, turn.state.slots(), now=turn.now)
        if grant is not None:
            _rebuild(desk, turn, grant)
    turn.state.recovery.estrange((), turn.state.grants)


def strangers(ledger: Ledger) -> list[Forgotten]:
    """Return the strangers whose seals are to be asked for: none while a stop stands, and none of retired nodes."""
    found = [] if ledger.stops else _forgotten(ledger, strangers=True)
    return [each for each in found if not ledger.fleet.nodes[each.node].retired]


def _rebuild(desk: Takes, turn: LedgerTurn, grant: Rebuilt) -> None:
    row = turn.state.attempts.rows.get((grant.grant.job, grant.grant.attempt))
    wanted = grant.whole and row is not None and row.state == "Pending" and row.cause is not None
    older = turn.state.holding(grant.devices)
    if turn.state.stops and not (wanted and all(older.values())):
        return
    state, said = turn.state, len(turn.said)
    try:
        turn.state = state.copy()
        _insert(desk, turn, grant, older)
    except ConflictError:
        turn.state = state
        del turn.said[said:]
        if not turn.state.stops:
            keys = [(part.order.grant, part.node, part.order.epoch) for part in grant.parts]
            turn.state.recovery.estrange(keys, ())
        return
    if not wanted:
        why = reason(Layer.PLACEMENT, Code.LEDGER_BEHIND, FORGOTTEN)
        desk.take(turn, {grant.grant.id: revoking(why)})


def _insert(desk: Takes, turn: LedgerTurn, found: Rebuilt, older: Collection[tuple[GrantId, NodeId]]) -> None:
    actions: dict[GrantId, list[Action]] = {}
    for grant, node in sorted(older):
        actions.setdefault(grant, []).append(_superseding(node, found.grant.epoch))
    desk.take(turn, {grant: chained(each) for grant, each in actions.items()})
    turn.state.insert_again(found, turn.now)
    step = issue(turn.state.grants[found.grant.id])
    for part in found.parts:
        held = step.grant.part(part.node)
        assert held is not None, part
        after = confirm(
            step.grant, part.node, instance=part.instance, boot=part.boot, replicas=held.replicas, now=turn.now
        )
        step = Step(after.grant, step.facts + after.facts)
    desk.take_steps(turn, turn.state.load([found.grant.id]), {found.grant.id: step})


def _forgotten(ledger: Ledger, *, strangers: bool) -> list[Forgotten]:
    found = []
    for (_, node, _), row in sorted(ledger.recovery.forgotten.items(), key=lambda item: item[0]):
        info = ledger.fleet.nodes[node].info
        if row.stranger is strangers:
            found.append(Forgotten(node, info.name, info.cluster, row.boot, row.instance, row.order))
    return found
