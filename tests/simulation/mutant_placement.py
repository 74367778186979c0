"""Placement with one rule left out; see ``mutants``."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from schemas.base import Envelope
from schemas.calls import Claim, ClaimAnswer, Hello, HelloAnswer, HolderVerdict, Seal, SealAnswer, Verdict
from schemas.ids import GrantId, JobId, NodeId, TenantId
from schemas.lifecycle import PartState
from schemas.reasons import Code
from schemas.runtime import ObservationNoticed, RunEvent
from services.placement.app import _sealing
from services.placement.core.decide import Placement
from services.placement.core.grant import Grant
from services.placement.store.attempts import Ended
from services.placement.store.changes import Action, Causes
from services.placement.store.wall import Walled
from tests.simulation.attempt_tables import AttemptTables
from tests.simulation.fleet_tables import FleetTables
from tests.simulation.ledger import Ledger
from tests.simulation.placement_desk import LedgerTurn, PlacementDesk
from tests.simulation.store import Turn


class ClaimNotRecorded(PlacementDesk):
    """The claim is checked and not recorded [A5, A5b]."""

    def claim(self, turn: LedgerTurn, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        return super().claim(Turn("placement", turn.now, turn.state.copy()), claims)


class SecondStartAllowed(PlacementDesk):
    """A claimed part may be claimed by another instance [A5b]."""

    def claim(self, turn: LedgerTurn, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        said = []
        for claim in claims:
            claimed = _state(turn.state, claim) is PartState.CLAIMED
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


class DeafnessIsSilence(PlacementDesk):
    """A node's silence counts also while nobody could hear it."""

    def listen(self, turn: LedgerTurn) -> bool:
        del turn
        return False


class EndNotTold(PlacementDesk):
    """The end of an attempt revokes nothing [C7]."""

    def workload(self, turn: LedgerTurn, batch: Sequence[Envelope]) -> None:
        super().workload(turn, [envelope for envelope in batch if not envelope.type.startswith("workload.job.cancel")])


class RevokedMayStart(PlacementDesk):
    """A claim that comes after the revocation is accepted [A5]."""

    def claim(self, turn: LedgerTurn, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        over = {PartState.REVOKING, PartState.RELEASED}
        said = []
        for claim in claims:
            said += [_yes(claim)] if _state(turn.state, claim) in over else super().claim(turn, [claim])
        return said


class DevicesNotNamed(PlacementDesk):
    """A claim does not say which devices the process will see [D1]."""

    def claim(self, turn: LedgerTurn, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        return super().claim(turn, [_as_granted(turn.state, claim) for claim in claims])


class UnknownIsStopped(PlacementDesk):
    """What the ledger has never heard of is to be stopped (G7)."""

    def hello(self, turn: LedgerTurn, hellos: Sequence[Hello]) -> list[HelloAnswer]:
        return [
            answer.model_copy(update={"verdicts": tuple(map(_stop_unknown, answer.verdicts))})
            for answer in super().hello(turn, hellos)
        ]


class EpochBeforeLock(PlacementDesk):
    """A replica draws twenty epochs at a time, before the devices are locked [B2]."""

    drawn: Sequence[int] = ()

    def grant(self, turn: LedgerTurn, placements: Sequence[Placement]) -> Walled:
        assert isinstance(turn.state, DrawsEarly)
        if len(self.drawn) < len(placements):
            self.drawn = Ledger.draw(turn.state, 20)
        turn.state.drawn, self.drawn = self.drawn[: len(placements)], self.drawn[len(placements) :]
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


class TwoGrants(Ledger):
    """An attempt that was given devices may be given more."""

    def waits(self, placement: Placement) -> bool:
        del placement
        return True

    def collides(self, new: Grant) -> bool:
        return any(device in self.lines for part in new.parts for device in part.device_ids)


class SealAskedOnce(Ledger):
    """The proof of release is asked for once, whether an answer comes or not."""

    def seals_due(self, now: datetime, limit: int) -> list[Seal]:
        fresh = [key for key, (_, asks) in self.seals.items() if not asks]
        due = super().seals_due(now, limit)
        return [seal for seal in due if (seal.grant, seal.node) in fresh]


class GrantsNotRepeated(Ledger):
    """What placement says of grants is said once, whether anybody hears it or not."""

    def unanswered(self, now: datetime, *, quiet_seconds: int) -> list[UUID]:
        del now, quiet_seconds
        return []


class AnyBoot(FleetTables):
    """The end of one boot frees what was claimed under every boot of its node [A11]."""

    def _end_others(self, node: NodeId, boot: str) -> dict[NodeId, frozenset[str]]:
        ended = super()._end_others(node, boot)
        return {node: ended[node] | {boot}} if ended else {}


def _yes(claim: Claim) -> ClaimAnswer:
    return ClaimAnswer(grant=claim.grant, nonce=claim.nonce, granted=True)


def _state(ledger: Ledger, claim: Claim) -> PartState | None:
    grant = ledger.grants.get(claim.grant)
    part = grant.part(claim.node) if grant else None
    return part.state if part else None


def _as_granted(ledger: Ledger, claim: Claim) -> Claim:
    grant = ledger.grants.get(claim.grant)
    part = grant.part(claim.node) if grant else None
    return claim.model_copy(update={"devices": part.device_ids}) if part else claim


def _stop_unknown(said: HolderVerdict) -> HolderVerdict:
    return said.model_copy(update={"verdict": Verdict.STOP}) if said.verdict is Verdict.UNKNOWN else said


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
