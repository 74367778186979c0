"""What placement does with facts and questions: load, decide, say."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from pydantic import BaseModel

from libs.questions import question
from libs.service import Turn
from schemas.base import Envelope
from schemas.calls import Claim, ClaimAnswer, Hello, HelloAnswer
from schemas.fleet import (
    ClusterChanged,
    ClusterDiscovered,
    NodeChanged,
    NodeDiscovered,
    NodeFreshened,
    NodeOwnerChanged,
    NodeRetired,
    NodeWentStale,
)
from schemas.ids import DeviceId, GrantId, JobId, NodeId, TenantId, run_name
from schemas.reasons import Code, Layer, Reason, reason
from schemas.runtime import ObservationNoticed, ObservationReported, RunEvent
from schemas.workload import (
    GrantRefused,
    JobAdmitted,
    JobCancelled,
    JobEvicted,
    JobFinished,
    JobRejected,
    RunFailed,
    RunLost,
    RunStopped,
    RunSucceeded,
)
from services.placement.core.claims import NodeDevice, NodeState, answer, verdicts
from services.placement.core.comeback import given_up
from services.placement.core.grant import Grant, Step, boot_ended
from services.placement.core.reasons import over_before, used_up
from services.placement.store import attempts, comebacks, fleet, grants, nodes, overdue, recovery
from services.placement.store.changes import Cause, Changes, chained, narrowing

AttemptOver = JobEvicted | JobRejected | JobCancelled | JobFinished
RunOver = RunSucceeded | RunFailed | RunStopped | RunLost
NodeTold = NodeDiscovered | NodeChanged | NodeOwnerChanged
Nothing = Callable[[], None]


class Handlers:
    """Handlers of the three planes and of the two calls. They wake the loops that wait for what they hear."""

    def __init__(self, changes: Changes, *, wake_cycle: Nothing, wake_seals: Nothing, wake_deadlines: Nothing) -> None:
        self._changes = changes
        self._wake_cycle = wake_cycle
        self._wake_seals = wake_seals
        self._wake_deadlines = wake_deadlines

    async def workload(self, turn: Turn, envelopes: Sequence[Envelope]) -> None:
        """Take admissions, ends of attempts and ends of runs."""
        admitted = [(e.data, e.version, e.id) for e in envelopes if isinstance(e.data, JobAdmitted)]
        over = {(e.data.job, e.data.attempt): e for e in envelopes if isinstance(e.data, AttemptOver)}
        if admitted:
            late = await attempts.admit(turn.connection, admitted)
            _refuse(turn, late, {(e.data.job, e.data.attempt): e for e in envelopes if isinstance(e.data, JobAdmitted)})
        reasons: dict[GrantId, Reason] = {}
        because: dict[GrantId, Cause] = {}
        ended = await self._end(turn, admitted, over)
        for grant, key in (await attempts.live_grants(turn.connection, ended)).items():
            fact = over.get(key)
            reasons[GrantId(grant)] = _attempt_over(fact)
            because[GrantId(grant)] = fact
        runs = {e.data.grant: e for e in envelopes if isinstance(e.data, RunOver)}
        for run_grant, envelope in runs.items():
            reasons.setdefault(run_grant, reason(Layer.PLACEMENT, Code.RUN_ENDED))
            because.setdefault(run_grant, envelope)
        await self._changes.revoke_all(turn, reasons, because)
        if runs:
            await attempts.note_run_over(turn.connection, sorted(runs))
        if over_for_good := given_up(e.data for e in envelopes):
            await comebacks.end(turn.connection, over_for_good)
        turn.after_commit(self._wake_cycle)
        turn.after_commit(self._wake_seals)

    async def again(self, turn: Turn, envelopes: Sequence[Envelope]) -> None:
        """Say the ends of grants once more whose runs' results are told again: dispatch has not heard of them."""
        told = {e.data.grant for e in envelopes if isinstance(e.data, RunOver)}
        if told:
            await turn.say_again(await attempts.said_of_ends(turn.connection, sorted(told)))

    async def fleet(self, turn: Turn, envelopes: Sequence[Envelope]) -> None:
        """Take what inventory says of clusters and nodes; the deadlines loop ends the grants on drained ones."""
        clusters = [
            (e.data.cluster, e.data.name, e.data.backend, e.data.levels, e.version)
            for e in envelopes
            if isinstance(e.data, ClusterDiscovered | ClusterChanged)
        ]
        infos = [(e.data.info, e.version) for e in envelopes if isinstance(e.data, NodeTold)]
        flags = [
            (e.data.node, e.version, isinstance(e.data, NodeWentStale), isinstance(e.data, NodeRetired))
            for e in envelopes
            if isinstance(e.data, NodeWentStale | NodeFreshened | NodeRetired)
        ]
        if clusters:
            await fleet.declare_clusters(turn.connection, clusters)
        await nodes.lock(turn.connection, {*(info.node for info, _ in infos), *(flag[0] for flag in flags)})
        if infos:
            await fleet.declare_nodes(turn.connection, infos)
        if flags:
            await fleet.flag_nodes(turn.connection, flags)
        turn.after_commit(self._wake_cycle)
        turn.after_commit(self._wake_deadlines)

    async def runtime(self, turn: Turn, envelopes: Sequence[Envelope]) -> None:
        """Take heartbeats, revoke parts alone that ended well, and ask for seals at once where a run ended."""
        reports = [e.data for e in envelopes if isinstance(e.data, ObservationReported)]
        ended = [e.data for e in envelopes if isinstance(e.data, ObservationNoticed) and e.data.event is RunEvent.ENDED]
        if reports:
            await nodes.heard(turn.connection, reports)
        if ended:
            await self._narrow(turn, ended)
        if ended and await overdue.seal_soon(turn.connection, {notice.grant for notice in ended}):
            turn.after_commit(self._wake_seals)

    async def claim(self, turn: Turn, bodies: Sequence[bytes]) -> Sequence[BaseModel]:
        """Answer the question that every start asks (R2, R3), after the commit that says so."""
        claims = [question(Claim, body) for body in bodies]
        await nodes.note_boots(turn.connection, {(claim.node, claim.boot) for claim in claims})
        held = await grants.load(turn.connection, {claim.grant for claim in claims})
        state = await _states(turn, claims, held)
        ledger = _Ledger(held, await grants.moment(turn.connection))
        answers = [ledger.answer(claim, state) for claim in claims]
        await self._changes.take_steps(turn, held, ledger.steps)
        return answers

    async def hello(self, turn: Turn, bodies: Sequence[bytes]) -> Sequence[BaseModel]:
        """Answer agents that came up: a boot that was not known ends the others (R6); a word on each holder (G7)."""
        hellos = [question(Hello, body) for body in bodies]
        boots = await nodes.register_boots(turn.connection, hellos)
        holders = {holder.grant for hello in hellos for holder in hello.holders}
        freed = await nodes.claimed_under(turn.connection, boots.ended) if boots.ended else set()
        held = await grants.load(turn.connection, holders | freed)
        ledger = _Ledger(held, await grants.moment(turn.connection))
        ledger.end_boots(boots)
        await self._changes.take_steps(turn, held, ledger.steps)
        if boots.ended:
            await overdue.note_boots_over(turn.connection, boots.ended)
            await recovery.end_boots(turn.connection, boots.ended)
        turn.after_commit(self._wake_seals)
        now_held = {grant: step.grant for grant, step in ledger.steps.items()}
        return [_greeting(hello, boots, now_held) for hello in hellos]

    async def _narrow(self, turn: Turn, ended: Sequence[ObservationNoticed]) -> None:
        """Revoke the parts alone that ended well while others go on (R13); a grant of one part is not even loaded."""
        well = [notice for notice in ended if notice.exit is not None and notice.exit.succeeded]
        gangs = await overdue.going_on_elsewhere(turn.connection, {notice.grant for notice in well}) if well else set()
        of = {grant: [narrowing(notice) for notice in well if notice.grant == grant] for grant in gangs}
        await self._changes.take(turn, {grant: chained(each) for grant, each in of.items()})

    async def _end(
        self,
        turn: Turn,
        admitted: Sequence[tuple[JobAdmitted, int, UUID]],
        over: Mapping[tuple[JobId, int], Envelope],
    ) -> list[attempts.Ended]:
        """End attempts, and refuse those that were given nothing. A job's earlier attempts are over too."""
        keys: list[tuple[JobId, int, TenantId, UUID]] = [
            (e.data.job, e.data.attempt, e.data.tenant, e.id) for e in over.values() if isinstance(e.data, AttemptOver)
        ]
        ended = await attempts.end(turn.connection, keys) if keys else []
        if keys:
            await attempts.answer_ends(turn.connection, keys)
        jobs = [fact.job for fact, _, _ in admitted] + [job for job, _ in over]
        ended += await attempts.end_earlier(turn.connection, jobs) if jobs else []
        _refuse(turn, [item for item in ended if not item.granted], over)
        return ended


class _Ledger:
    """The grants of one turn while questions are answered one after the other."""

    def __init__(self, before: Mapping[GrantId, Grant], now: datetime) -> None:
        self.steps = {grant: Step(held) for grant, held in before.items()}
        self._now = now

    def end_boots(self, boots: nodes.Boots) -> None:
        """Free what was claimed under boots that have ended."""
        for node, ended in boots.ended.items():
            for step in list(self.steps.values()):
                self._take(boot_ended(step.grant, node, ended, now=self._now))

    def answer(self, claim: Claim, state: Mapping[NodeId, NodeState]) -> ClaimAnswer:
        """Answer one claim on the grants as the claims before it left them."""
        held = self.steps.get(claim.grant)
        step, said = answer(held.grant if held else None, claim, state[claim.node], now=self._now)
        if step is not None:
            self._take(step)
        return said

    def _take(self, step: Step) -> None:
        grant = step.grant.id
        self.steps[grant] = Step(step.grant, self.steps[grant].facts + step.facts)


async def _states(turn: Turn, claims: Sequence[Claim], held: Mapping[GrantId, Grant]) -> dict[NodeId, NodeState]:
    """What the claims are held against; devices that the ledger did not grant are locked, since they may be rebound."""
    granted: set[DeviceId] = {device for grant in held.values() for part in grant.parts for device in part.device_ids}
    seen = {device for claim in claims for device in claim.devices}
    found = await nodes.devices(turn.connection, seen | granted if seen - granted else seen, lock=bool(seen - granted))
    ended = await nodes.ended_boots(turn.connection, {claim.node for claim in claims})
    devices: dict[DeviceId, NodeDevice] = found
    return {node: NodeState(devices, boots) for node, boots in ended.items()}


def _refuse(turn: Turn, ended: Sequence[attempts.Ended], over: Mapping[tuple[JobId, int], Envelope]) -> None:
    """Say of attempts that nothing is issued to them: they were over before, or a later ledger had issued (R12)."""
    for item in ended:
        why = used_up() if item.granted else over_before()
        fact = GrantRefused(
            job=item.job,
            attempt=item.attempt,
            tenant=item.tenant,
            reason=why,
            final=True,
        )
        key = (item.job, item.attempt)
        turn.emit(fact, scope=item.tenant, key=run_name(*key), version=item.refusals, cause=over.get(key))


def _greeting(hello: Hello, boots: nodes.Boots, held: Mapping[GrantId, Grant]) -> HelloAnswer:
    return HelloAnswer(
        boot_known=(hello.node, hello.boot) in boots.known,
        verdicts=verdicts(hello, held),
        boots=boots.refused.get(hello.node),
    )


def _attempt_over(envelope: Envelope | None) -> Reason:
    """The revocation says why the attempt is over, where that is known."""
    fact = envelope.data if envelope else None
    if isinstance(fact, JobEvicted | JobRejected):
        return fact.reason
    if isinstance(fact, JobCancelled):
        return reason(Layer.ADMISSION, Code.CANCELLED, fact.message)
    return reason(Layer.PLACEMENT, Code.ATTEMPT_OVER)
