"""Worlds in which one rule is left out: each must be found out, or the storms would prove nothing."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from schemas.base import Envelope
from schemas.calls import Claim, ClaimAnswer, Hello, SealAnswer
from schemas.ids import GrantId, JobId, TenantId
from schemas.lifecycle import JobState, PartState
from schemas.reasons import Code
from schemas.runtime import ObservationNoticed, RunEvent
from schemas.workload import RunFailed, RunSucceeded
from services.admission.core import QueueKey, View
from services.placement.app import _sealing
from services.placement.core.decide import Decision, Placement
from services.placement.core.grant import Grant
from services.placement.store.attempts import Ended
from services.placement.store.changes import Action, Causes
from services.placement.store.wall import Walled
from tests.simulation.admission import AdmissionDesk, Desks
from tests.simulation.attempt_tables import AttemptTables
from tests.simulation.dispatch import DispatchDesk, Runs
from tests.simulation.fleet_tables import FleetTables
from tests.simulation.ledger import Ledger
from tests.simulation.placement_desk import LedgerTurn, PlacementDesk
from tests.simulation.store import Turn
from tests.simulation.world import ADMISSION, DISPATCH, PLACEMENT, Rules


class ClaimNotRecorded(PlacementDesk):
    """The claim is checked and not recorded [A5, A5b]."""

    def claim(self, turn: LedgerTurn, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        return super().claim(Turn("placement", turn.now, turn.state.copy()), claims)


class SecondStartAllowed(PlacementDesk):
    """A claimed part may be claimed by another instance [A5b]."""

    def claim(self, turn: LedgerTurn, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        said = []
        for claim in claims:
            claimed = _is_claimed(turn.state, claim)
            said += [_yes(claim)] if claimed else super().claim(turn, [claim])
        return said


class WordFrees(PlacementDesk):
    """What a node says of a run's end is taken for a seal, which nobody has asked for [A6]."""

    def runtime(self, turn: LedgerTurn, batch: Sequence[Envelope]) -> None:
        super().runtime(turn, batch)
        ends = [e.data for e in batch if isinstance(e.data, ObservationNoticed) and e.data.event is RunEvent.ENDED]
        _free(self, turn, {fact.grant for fact in ends})


class RevokedIsFree(PlacementDesk):
    """A revocation frees at once what is Claimed, whatever lives there."""

    def take(self, turn: LedgerTurn, actions: Mapping[GrantId, Action], because: Causes | None = None) -> None:
        super().take(turn, actions, because)
        _free(self, turn, actions)


class SilenceFrees(PlacementDesk):
    """A node that is silent for long is taken for dead, and its devices for free [A9]."""

    def take(self, turn: LedgerTurn, actions: Mapping[GrantId, Action], because: Causes | None = None) -> None:
        super().take(turn, actions, because)
        lost = [
            g for g in turn.state.load(actions).values() if g.reason is not None and g.reason.code is Code.NODE_LOST
        ]
        _free(self, turn, {grant.id for grant in lost})


class EndNotTold(PlacementDesk):
    """The end of an attempt revokes nothing [C7]."""

    def workload(self, turn: LedgerTurn, batch: Sequence[Envelope]) -> None:
        super().workload(turn, [envelope for envelope in batch if not envelope.type.startswith("workload.job.cancel")])


class EpochBeforeLock(PlacementDesk):
    """The epoch is drawn with the decision, before the devices are locked [B2]."""

    drawn: Sequence[int] = ()

    def decide(self, turn: LedgerTurn) -> Decision | None:
        decision = super().decide(turn)
        self.drawn = Ledger.draw(turn.state, len(decision.placements)) if decision else ()
        return decision

    def grant(self, turn: LedgerTurn, placements: Sequence[Placement]) -> Walled:
        assert isinstance(turn.state, DrawsEarly)
        turn.state.drawn = self.drawn
        return super().grant(turn, placements)


class DrawsEarly(Ledger):
    """A ledger that takes the epochs that it is given."""

    drawn: Sequence[int] = ()

    def draw(self, count: int) -> list[int]:
        return list(self.drawn[:count])


class NoWall(Ledger):
    """Leases alone keep two grants off a device: no line is looked at, no constraint refuses [B1]."""

    def is_free(self, placement: Placement) -> bool:
        lines, self.lines = self.lines, {}
        free = super().is_free(placement)
        self.lines = lines
        return free

    def collides(self, new: Grant) -> bool:
        del new
        return False


class HalfAGang(Ledger):
    """A gang is given what there is for it."""

    def make(self, placement: Placement, epoch: int, *, now: datetime, deadline: datetime) -> Grant:
        whole = super().make(placement, epoch, now=now, deadline=deadline)
        return replace(whole, parts=whole.parts[:1])


class Forgetful(AttemptTables):
    """The end of an attempt that was not heard of yet is forgotten [C3]."""

    def end(self, over: Sequence[tuple[JobId, int, TenantId, UUID]]) -> list[Ended]:
        return super().end([each for each in over if (each[0], each[1]) in self.rows])


class AnyHello(FleetTables):
    """A hello ends all other boots of its node, however late it comes [A11]."""

    def may_take(self, hello: Hello, count: int) -> bool:
        del hello, count
        return True


class EndNotFinal(AdmissionDesk):
    """An end can be followed by another [C2]."""

    def load(self, turn: Turn[Desks], keys: Collection[QueueKey], jobs: Collection[JobId], *, makes_room: bool) -> View:
        view = super().load(turn, keys, jobs, makes_room=makes_room)
        open_ = {key: replace(job, state=JobState.ADMITTED) for key, job in view.jobs.items() if job.ended}
        return replace(view, jobs={**view.jobs, **open_})


class AnyAttempt(AdmissionDesk):
    """The result of an earlier attempt is taken for the present one's [C1]."""

    def workload(self, turn: Turn[Desks], batch: Sequence[Envelope]) -> None:
        super().workload(turn, [self._renamed(turn.state.view, envelope) for envelope in batch])

    def _renamed(self, view: View, envelope: Envelope) -> Envelope:
        fact = envelope.data
        if not isinstance(fact, RunSucceeded | RunFailed) or fact.job not in view.jobs:
            return envelope
        attempt = view.jobs[fact.job].attempt
        return replace(envelope, data=fact.model_copy(update={"attempt": attempt}))


class ChargeEndsEarly(AdmissionDesk):
    """The charge ends with the attempt, not with the release [C4]."""

    def workload(self, turn: Turn[Desks], batch: Sequence[Envelope]) -> None:
        super().workload(turn, batch)
        view = turn.state.view
        charges = {
            key: replace(charge, over=charge.over or view.jobs[key[0]].ended) for key, charge in view.charges.items()
        }
        turn.state = replace(turn.state, view=replace(view, charges=charges))


class QuotaForgotten(AdmissionDesk):
    """What is charged is not looked at when the next is admitted."""

    def load(self, turn: Turn[Desks], keys: Collection[QueueKey], jobs: Collection[JobId], *, makes_room: bool) -> View:
        view = super().load(turn, keys, jobs, makes_room=makes_room)
        return replace(view, used={})


class NothingTwice(DispatchDesk):
    """Results are said once, whether anybody hears them or not."""

    def unanswered(self, turn: Turn[Runs]) -> list[UUID]:
        del turn
        return []

    def again(self, turn: Turn[Runs], batch: Sequence[Envelope]) -> None:
        del turn, batch


def _placement(desk: type[PlacementDesk]) -> Rules:
    return Rules(placement=lambda: desk(PLACEMENT))


def _admission(desk: type[AdmissionDesk]) -> Rules:
    return Rules(admission=lambda: desk(ADMISSION))


MUTANTS: Final[Mapping[str, Rules]] = {
    "a claim is not recorded": _placement(ClaimNotRecorded),
    "a second start is allowed": _placement(SecondStartAllowed),
    "a node's word is taken for a seal": _placement(WordFrees),
    "a revocation frees what is claimed": _placement(RevokedIsFree),
    "silence frees": _placement(SilenceFrees),
    "the end of an attempt revokes nothing": _placement(EndNotTold),
    "the epoch is drawn before the lock": Rules(placement=lambda: EpochBeforeLock(PLACEMENT), ledger=DrawsEarly),
    "leases are the only wall": Rules(ledger=NoWall),
    "a gang is given what there is": Rules(ledger=HalfAGang),
    "an end that comes first is forgotten": Rules(ledger=lambda: Ledger(attempts=Forgetful())),
    "a late hello counts": Rules(ledger=lambda: Ledger(fleet=AnyHello())),
    "an end is not final": _admission(EndNotFinal),
    "the result of any attempt counts": _admission(AnyAttempt),
    "a charge ends before its release": _admission(ChargeEndsEarly),
    "what is charged is forgotten": _admission(QuotaForgotten),
    "a result is said once": Rules(dispatch=lambda: NothingTwice(DISPATCH)),
}


def _yes(claim: Claim) -> ClaimAnswer:
    return ClaimAnswer(grant=claim.grant, nonce=claim.nonce, granted=True)


def _is_claimed(ledger: Ledger, claim: Claim) -> bool:
    grant = ledger.grants.get(claim.grant)
    part = grant.part(claim.node) if grant else None
    return part is not None and part.state is PartState.CLAIMED


def _free(desk: PlacementDesk, turn: LedgerTurn, grants: Collection[GrantId]) -> None:
    """Seal what is Revoking, as if an agent had looked."""
    for grant in turn.state.load(grants).values():
        for part in grant.parts:
            if part.state is PartState.REVOKING and grant.revocation is not None:
                forged = SealAnswer(
                    grant=grant.id,
                    epoch=grant.epoch,
                    node=part.node,
                    revocation=grant.revocation,
                    sealed=True,
                    boot="",
                    devices=part.device_ids,
                    observed_at=turn.now,
                )
                PlacementDesk.take(desk, turn, {grant.id: _sealing(forged)})
