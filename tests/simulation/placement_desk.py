"""What placement does in one turn, on the ledger in memory: the handlers and the loops' turns, with the real core."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libs.hearing import is_gap
from libs.leases import Lease
from schemas.base import Envelope
from schemas.calls import Claim, ClaimAnswer, Hello, HelloAnswer, HoldersAnswer, Seal, SealAnswer
from schemas.fleet import ClusterChanged, ClusterDiscovered, NodeFreshened, NodeRetired, NodeWentStale
from schemas.ids import DeviceId, GrantId, JobId, NodeId, run_name
from schemas.moves import TransferDrop, TransferDropAnswer, TransferHold, TransferHoldAnswer
from schemas.reasons import Code, Layer, Reason, reason
from schemas.runtime import ObservationNoticed, ObservationReported, RunEvent
from schemas.workload import GrantRefused, JobAdmitted
from services.placement.app import _sealing
from services.placement.core.claims import NodeState
from services.placement.core.comeback import Comeback, comes_back, given_up
from services.placement.core.decide import Decision, Placement, decide
from services.placement.core.grant import Grant, Step, issue
from services.placement.core.reasons import over_before, used_up
from services.placement.core.recovery import Forgotten
from services.placement.core.silence import judge
from services.placement.handlers.deadlines import escalating, following
from services.placement.handlers.facts import AttemptOver, NodeTold, RunOver, _attempt_over, _greeting, _Ledger
from services.placement.settings import Settings
from services.placement.store.attempts import Ended, Refused
from services.placement.store.changes import Action, Cause, Causes, _freed, chained, narrowing, revoking
from services.placement.store.grants import Change
from services.placement.store.wall import Walled
from tests.simulation import hold_desk, recovery_desk
from tests.simulation.attempt_tables import Attempt
from tests.simulation.fleet_view import load_view
from tests.simulation.ledger import Ledger
from tests.simulation.store import Turn

LedgerTurn = Turn[Ledger]


@dataclass(slots=True)
class Outcome:
    """What is to be done once the turn is committed: leases to give back, loops to wake."""

    freed: list[Lease]
    seals: bool = False
    cycle: bool = False
    deadlines: bool = False


class PlacementDesk:
    """The turns. ``outcome`` of the last one says what follows from it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.outcome = Outcome([])

    def workload(self, turn: LedgerTurn, batch: Sequence[Envelope]) -> None:
        """Take admissions, ends of attempts and ends of runs."""
        admitted = [(e.data, e.version, e.id) for e in batch if isinstance(e.data, JobAdmitted)]
        over = {(e.data.job, e.data.attempt): e for e in batch if isinstance(e.data, AttemptOver)}
        if admitted:
            admissions = {(e.data.job, e.data.attempt): e for e in batch if isinstance(e.data, JobAdmitted)}
            self._refuse_over(turn, turn.state.attempts.admit(admitted), admissions)
        reasons: dict[GrantId, Reason] = {}
        because: dict[GrantId, Cause] = {}
        jobs = [fact.job for fact, _, _ in admitted] + [job for job, _ in over]
        for grant, key in turn.state.live_grants(self._end(turn, over, jobs)).items():
            reasons[grant] = _attempt_over(over.get(key))
            because[grant] = over.get(key)
        for envelope in batch:
            if isinstance(envelope.data, RunOver):
                reasons.setdefault(envelope.data.grant, reason(Layer.PLACEMENT, Code.RUN_ENDED))
                because.setdefault(envelope.data.grant, envelope)
                turn.state.run_over.add(envelope.data.grant)
        self.take(turn, {grant: revoking(why) for grant, why in reasons.items()}, because)
        turn.state.comebacks.end(given_up(e.data for e in batch))
        self.outcome.cycle = self.outcome.seals = True

    def again(self, turn: LedgerTurn, batch: Sequence[Envelope]) -> None:
        """Say the ends of grants once more whose runs' results are told again."""
        turn.say_again(turn.state.said_of_all_ends({e.data.grant for e in batch if isinstance(e.data, RunOver)}))

    def fleet(self, turn: LedgerTurn, batch: Sequence[Envelope]) -> None:
        """Take what inventory says of clusters and nodes."""
        tables = turn.state.fleet
        for each in batch:
            match each.data:
                case ClusterDiscovered() | ClusterChanged() as fact:
                    tables.declare_clusters([(fact.cluster, fact.name, fact.backend, fact.levels, each.version)])
                case _:
                    continue
        infos = [(e.data.info, e.version) for e in batch if isinstance(e.data, NodeTold)]
        tables.declare_nodes(infos, turn.now)
        flags = [
            (e.data.node, e.version, isinstance(e.data, NodeWentStale), isinstance(e.data, NodeRetired))
            for e in batch
            if isinstance(e.data, NodeWentStale | NodeFreshened | NodeRetired)
        ]
        tables.flag_nodes(flags, turn.now)
        self.outcome.cycle = self.outcome.deadlines = True

    def runtime(self, turn: LedgerTurn, batch: Sequence[Envelope]) -> None:
        """Take heartbeats, revoke parts alone that ended well, and let seals be asked for where a run ended."""
        reports = [e.data for e in batch if isinstance(e.data, ObservationReported)]
        ended = [e.data for e in batch if isinstance(e.data, ObservationNoticed) and e.data.event is RunEvent.ENDED]
        if reports:
            turn.state.fleet.heard(reports, turn.now)
        of: dict[GrantId, list[Action]] = {}
        for notice in ended:
            of.setdefault(notice.grant, []).append(narrowing(notice))
        self.take(turn, {grant: chained(each) for grant, each in of.items()})
        if ended and turn.state.seal_soon({notice.grant for notice in ended}, turn.now):
            self.outcome.seals = True

    def claim(self, turn: LedgerTurn, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        """Answer the question that every start asks (R2, R3)."""
        turn.state.fleet.note_boots((claim.node, claim.boot) for claim in claims)
        held = turn.state.load({claim.grant for claim in claims})
        state = _states(turn.state, claims, held)
        ledger = _Ledger(held, turn.now)
        answers = [ledger.answer(claim, state) for claim in claims]
        self._take_steps(turn, held, ledger.steps)
        return answers

    def hello(self, turn: LedgerTurn, hellos: Sequence[Hello]) -> list[HelloAnswer]:
        """Answer agents that came up (R6, G7)."""
        boots = turn.state.fleet.register_boots(hellos)
        holders = {holder.grant for hello in hellos for holder in hello.holders}
        held = turn.state.load(holders | turn.state.claimed_under(boots.ended))
        ledger = _Ledger(held, turn.now)
        ledger.end_boots(boots)
        self._take_steps(turn, held, ledger.steps)
        turn.state.note_boots_over(boots.ended)
        turn.state.recovery.end_boots(boots.ended)
        self.outcome.seals = True
        now_held = {grant: step.grant for grant, step in ledger.steps.items()}
        return [_greeting(hello, boots, now_held) for hello in hellos]

    def decide(self, turn: LedgerTurn) -> Decision | None:
        """Decide on one view of what waits."""
        pending = turn.state.attempts.pending()
        stopped = turn.state.stops or turn.state.recovery.takes_up
        return None if not pending or stopped else decide(load_view(turn.state), pending, self.comebacks(turn))

    def comebacks(self, turn: LedgerTurn) -> list[Comeback]:
        """Return what is held for gangs that lost a node."""
        state = turn.state
        return state.comebacks.standing(state.grants, state.attempts, turn.now)

    def grant(self, turn: LedgerTurn, placements: Sequence[Placement]) -> Walled:
        """Take placements through the wall (R1)."""
        walled = turn.state.grant(placements, turn.now, start_seconds=self.settings.start_deadline_seconds)
        turn.state.comebacks.end({new.job for new in walled.granted})
        for new in walled.granted:
            cause = turn.state.cause_of(new)
            for said in issue(new).facts:
                turn.emit(said.fact, scope=new.tenant, key=new.id, version=said.version, cause=cause)
        return walled

    def refuse(self, turn: LedgerTurn, decision: Decision) -> None:
        """Say why gangs wait, where that is news."""
        repeat = self.settings.refusal_repeat_seconds
        for refused in turn.state.attempts.refuse(decision.refusals, turn.now, repeat_seconds=repeat):
            _emit_refused(turn, refused)

    def seals_due(self, turn: LedgerTurn) -> list[Seal]:
        """Take the seals to ask for now."""
        return turn.state.seals_due(turn.now, self.settings.seals_at_once)

    def take_seals(self, turn: LedgerTurn, given: Sequence[SealAnswer]) -> None:
        """Take the proofs that came (R5)."""
        answers: dict[GrantId, list[SealAnswer]] = {}
        for each in given:
            answers.setdefault(each.grant, []).append(each)
        self.take(turn, {grant: chained([_sealing(one) for one in each]) for grant, each in answers.items()})
        turn.state.note_clear(given)

    def listen(self, turn: LedgerTurn) -> bool:
        """Note that the ledger's replicas can hear, and correct the times of nodes by what nobody could hear, if so."""
        gap = turn.state.fleet.listen(turn.now)
        if not is_gap(gap, self.settings.deadline_seconds):
            return False
        turn.state.fleet.shift(gap, turn.now)
        return True

    def deadlines(self, turn: LedgerTurn, listened_seconds: float) -> None:
        """Let follow what follows when time passes (R7); who has not listened so long can call nobody silent."""
        if listened_seconds >= self.settings.suspect_after_seconds:
            self._silence(turn)
        late = turn.state.overdue(turn.now, stuck_seconds=self.settings.stuck_after_seconds)
        if listened_seconds >= self.settings.late_start_grace_seconds:
            why = reason(Layer.PLACEMENT, Code.PODS_READY_TIMEOUT, "not started before the start deadline")
            self.take(turn, dict.fromkeys(late.unclaimed, revoking(why)))
        stuck: dict[GrantId, list[Action]] = {}
        for grant, node in late.stuck if listened_seconds >= self.settings.stuck_after_seconds else ():
            stuck.setdefault(grant, []).append(escalating(node, Code.STUCK_TERMINATION))
        self.take(turn, {grant: chained(each) for grant, each in stuck.items()})
        drained = turn.state.drained_grants() | hold_desk.stopped_grants(turn.state)
        over = {grant: reason(Layer.PLACEMENT, Code.DRAINED, text) for grant, text in drained.items()}
        self.take(turn, {grant: revoking(why) for grant, why in over.items()})
        turn.state.comebacks.end_late(turn.now)
        self.outcome.seals = True

    def hold(self, turn: LedgerTurn, asked: TransferHold) -> TransferHoldAnswer:
        """Keep a node for its move (M1)."""
        answer = hold_desk.take(turn, asked)
        self.outcome.deadlines = asked.stop and not answer.held
        return answer

    def drop(self, turn: LedgerTurn, asked: TransferDrop) -> TransferDropAnswer:
        """Give the slots of a node back, for its move was given up."""
        self.outcome.cycle = True
        return hold_desk.drop(turn, asked)

    def take(self, turn: LedgerTurn, actions: Mapping[GrantId, Action], because: Causes | None = None) -> None:
        """Do each action on its grant, and say what follows."""
        held = turn.state.load(actions)
        steps = {grant: actions[grant](found, turn.now) for grant, found in held.items()}
        self._take_steps(turn, held, steps, because)

    def told(self, turn: LedgerTurn, answers: Sequence[HoldersAnswer]) -> None:
        """Take what nodes say that they run, after the ledger went back (R12)."""
        recovery_desk.told(self, turn, answers)

    def take_up(self, turn: LedgerTurn) -> None:
        """Take up what runs and is not known (R12)."""
        recovery_desk.take_up(self, turn)
        self.outcome.cycle = self.outcome.seals = True

    def settle(self, turn: LedgerTurn, stranger: Forgotten) -> None:
        """Forget a stranger that is proved over: its devices are offered again (R12)."""
        turn.state.recovery.settle([(stranger.order.grant, stranger.node, stranger.order.epoch)])
        self.outcome.cycle = True

    def take_steps(self, turn: LedgerTurn, held: Mapping[GrantId, Grant], steps: Mapping[GrantId, Step]) -> None:
        """Write what was decided of these grants, and say it."""
        self._take_steps(turn, held, steps)

    def _silence(self, turn: LedgerTurn) -> None:
        silence = judge(turn.state.fleet.listening(), self.settings.silence, now=turn.now)
        turn.state.fleet.mark_silence(silence, turn.now)
        marked = {*silence.suspect, *silence.fresh, *silence.lost}
        actions: dict[GrantId, list[Action]] = {}
        for node, grants in turn.state.held_on(marked).items():
            follows = following(node, lost=node in silence.lost, fresh=node in silence.fresh)
            for grant in grants:
                actions.setdefault(grant, []).extend(follows)
        self.take(turn, {grant: chained(each) for grant, each in actions.items()})

    def _end(self, turn: LedgerTurn, over: Mapping[Attempt, Envelope], jobs: Sequence[JobId]) -> list[Ended]:
        keys = [
            (e.data.job, e.data.attempt, e.data.tenant, e.id) for e in over.values() if isinstance(e.data, AttemptOver)
        ]
        ended = turn.state.attempts.end(keys)
        turn.answer_another(turn.state.answers_of_ends(keys))
        ended += turn.state.attempts.end_earlier(jobs)
        self._refuse_over(turn, [item for item in ended if not item.granted], over)
        return ended

    def _refuse_over(self, turn: LedgerTurn, ended: Sequence[Ended], because: Mapping[Attempt, Envelope]) -> None:
        for item in ended:
            key = (item.job, item.attempt)
            why = used_up() if item.granted else over_before()
            fact = GrantRefused(job=item.job, attempt=item.attempt, tenant=item.tenant, reason=why, final=True)
            turn.emit(fact, scope=item.tenant, key=run_name(*key), version=item.refusals, cause=because.get(key))

    def _take_steps(
        self,
        turn: LedgerTurn,
        held: Mapping[GrantId, Grant],
        steps: Mapping[GrantId, Step],
        because: Causes | None = None,
    ) -> None:
        for identity, step in steps.items():
            if step.grant == held[identity]:
                continue
            turn.state.save(step.grant, turn.now)
            cause = (because or {}).get(identity) or turn.state.cause_of(step.grant)
            for said in step.facts:
                turn.emit(said.fact, scope=step.grant.tenant, key=identity, version=said.version, cause=cause)
            self.outcome.freed += _freed(Change(held[identity], step.grant))
        lost = [step.grant for grant, step in steps.items() if comes_back(held[grant], step.grant)]
        turn.state.comebacks.keep(lost, turn.state.attempts)


def _states(ledger: Ledger, claims: Sequence[Claim], held: Mapping[GrantId, Grant]) -> dict[NodeId, NodeState]:
    granted: set[DeviceId] = {device for grant in held.values() for part in grant.parts for device in part.device_ids}
    devices = ledger.devices({device for claim in claims for device in claim.devices} | granted)
    ended = ledger.fleet.ended_boots({claim.node for claim in claims})
    return {node: NodeState(devices, boots) for node, boots in ended.items()}


def _emit_refused(turn: LedgerTurn, refused: Refused) -> None:
    pending = refused.refusal.pending
    fact = GrantRefused(
        job=pending.job,
        attempt=pending.attempt,
        tenant=pending.tenant,
        reason=refused.refusal.reason,
        final=refused.refusal.final,
    )
    key = run_name(pending.job, pending.attempt)
    turn.emit(fact, scope=pending.tenant, key=key, version=refused.version, cause=refused.cause)
