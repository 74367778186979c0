"""Worlds in which one rule is left out: each must be found out, or the storms would prove nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.simulation.admission import AdmissionDesk
from tests.simulation.attempt_tables import AttemptTables
from tests.simulation.comeback_tables import ComebackTables
from tests.simulation.fleet_tables import FleetTables
from tests.simulation.ledger import Ledger
from tests.simulation.moving import Moves
from tests.simulation.mutant_comebacks import HeldForEver, HeldInVain
from tests.simulation.mutant_moves import (
    AnyDestination,
    ClaimsByName,
    HoldsUnseen,
    LooksUnasked,
    MarksOnce,
    MarksUnasked,
    NobodyIsTold,
    OutlivedHoldsStay,
    OwnersByName,
)
from tests.simulation.mutant_nodes import BusyIsFine, LeaveUnseen, SealsUnseen, SilenceIsYes, StartsUnasked
from tests.simulation.mutant_placement import (
    AnyBoot,
    AnyHello,
    ClaimNotRecorded,
    DeafnessIsSilence,
    DevicesNotNamed,
    DrawsEarly,
    EndNotTold,
    EpochBeforeLock,
    Forgetful,
    GrantsNotRepeated,
    HalfAGang,
    NoWall,
    RevokedIsFree,
    RevokedMayStart,
    SealAskedOnce,
    SecondStartAllowed,
    SilenceFrees,
    TwoGrants,
    UnknownIsStopped,
    WordFrees,
)
from tests.simulation.mutant_recovery import (
    GrantsOn,
    NothingIsDoubtful,
    StrangersStay,
    TellsInVain,
)
from tests.simulation.mutant_services import (
    AnyAttemptCounts,
    AnybodyGoes,
    ChargeEndsEarly,
    EarlierForgotten,
    EndNotFinal,
    JobsNotRepeated,
    LeavingForgotten,
    NothingTwice,
    QuotaForgotten,
    WithdrawalForgotten,
)
from tests.simulation.people import CROWDED
from tests.simulation.placement_desk import PlacementDesk
from tests.simulation.recovery_tables import RecoveryTables
from tests.simulation.weather import KINDS
from tests.simulation.world import ADMISSION, DISPATCH, PLACEMENT, Rules

OFTEN: Final = 30  # restores of old backups, at most


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule left out: ``seed`` is a storm of so many steps that found it, and ``breach`` how what it said begins.

    ``spared``: kinds of faults that do not strike, since they cut short what is to be found.
    """

    rules: Rules
    breach: str | tuple[str, ...]
    seed: int
    steps: int = 1_000
    spared: tuple[str, ...] = ()


def _all_but(*kinds: str) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if kind not in kinds)


def _placement(desk: type[PlacementDesk]) -> Rules:
    return Rules(placement=lambda: desk(PLACEMENT))


def _admission(desk: type[AdmissionDesk]) -> Rules:
    return Rules(admission=lambda: desk(ADMISSION))


def _attempts(tables: type[AttemptTables]) -> Rules:
    return Rules(ledger=lambda: Ledger(attempts=tables()))


def _fleet(tables: type[FleetTables]) -> Rules:
    return Rules(ledger=lambda: Ledger(fleet=tables()))


def _moves(moves: type[Moves], restores: int | None = None) -> Rules:
    return Rules(moves=moves, moved=1.0, restores=restores)


def _comebacks(tables: type[ComebackTables]) -> Rules:
    return Rules(ledger=lambda: Ledger(comebacks=tables()))


def _recovery(tables: type[RecoveryTables]) -> Rules:
    return Rules(ledger=lambda: Ledger(recovery=tables()), restores=OFTEN)


MUTANTS: Final[Mapping[str, Mutant]] = {
    "leases are the only wall": Mutant(
        Rules(ledger=NoWall, crowd=CROWDED),
        ("I1: lines and live parts differ", "KeyError: 'dev_"),
        0,
        spared=("restore", "gone", "cut", "reboot", "broker", "stream", "blind", "refusal"),
    ),
    "the epoch is drawn before the lock": Mutant(
        Rules(placement=lambda: EpochBeforeLock(PLACEMENT), ledger=DrawsEarly), "I1: an epoch", 0
    ),
    "a gang is given what there is": Mutant(Rules(ledger=HalfAGang), "I3:", 0),
    "an attempt is given devices twice": Mutant(Rules(ledger=TwoGrants), ("I2:", "I4: said twice"), 13),
    "a claim is not recorded": Mutant(_placement(ClaimNotRecorded), "I1:", 0),
    "a second start is allowed": Mutant(_placement(SecondStartAllowed), "I4:", 8),
    "a start after the revocation is allowed": Mutant(_placement(RevokedMayStart), ("I1:", "I4:"), 2),
    "a claim does not name its devices": Mutant(_placement(DevicesNotNamed), "I1:", 11),
    "a revocation frees what is claimed": Mutant(_placement(RevokedIsFree), "I1:", 2),
    "a node's word is taken for a seal": Mutant(_placement(WordFrees), "I1:", 17),
    "silence frees": Mutant(_placement(SilenceFrees), "I1:", 1, 3_000, _all_but("cut", "slow")),
    "a late hello counts": Mutant(_fleet(AnyHello), ("I1:", "I7:"), 43),
    "the end of one boot frees the claims of all": Mutant(_fleet(AnyBoot), ("I1:", "I7:"), 3),
    "a seal is asked for once": Mutant(Rules(ledger=SealAskedOnce), "stuck", 0),
    "the end of an attempt revokes nothing": Mutant(_placement(EndNotTold), "stuck", 0),
    "an end that comes first is forgotten": Mutant(_attempts(Forgetful), "stuck", 5),
    "what no ledger knows is stopped": Mutant(_placement(UnknownIsStopped), "I7:", 5),
    "a node starts what it was not allowed to": Mutant(Rules(cluster=StartsUnasked), "I1:", 0),
    "no answer is taken for leave to start": Mutant(Rules(cluster=SilenceIsYes), "I1:", 0),
    "a start does not look whether its devices are clear": Mutant(Rules(cluster=BusyIsFine), "I1:", 48),
    "an agent seals without looking": Mutant(Rules(cluster=SealsUnseen), "I1:", 23),
    "no lock tells of a start that has leave": Mutant(Rules(cluster=LeaveUnseen), "I1:", 22),
    "silence counts while nobody could hear": Mutant(_placement(DeafnessIsSilence), "I7: grant_", 8),
    "a ledger that went back goes on granting": Mutant(Rules(ledger=GrantsOn, restores=OFTEN), "I7: grant_", 27),
    "what nodes tell a ledger that went back is not kept": Mutant(_recovery(TellsInVain), "I7: grant_", 16),
    "a ledger that went back takes what it does not know for not started": Mutant(
        _recovery(NothingIsDoubtful), "I7: grant_", 27
    ),
    "what no ledger knows goes on after the stop is lifted": Mutant(_placement(StrangersStay), ("I2:", "stuck"), 11),
    "what is held for a gang that lost a node is given to others": Mutant(_placement(HeldInVain), "I8:", 11),
    "what is held for a gang that lost a node is held for ever": Mutant(_comebacks(HeldForEver), "I8: at", 12),
    "a grant takes what a move holds": Mutant(
        Rules(ledger=lambda: HoldsUnseen(fleet=FleetTables(holds=NobodyIsTold())), moved=1.0), "M1:", 0
    ),
    "a mark is taken for acknowledged": Mutant(_moves(MarksUnasked), "M2:", 0),
    "nobody looks whether a node that moves is clear": Mutant(_moves(LooksUnasked), "M2:", 7),
    "a hold stays when its owner epoch has passed": Mutant(
        Rules(ledger=lambda: Ledger(fleet=FleetTables(holds=OutlivedHoldsStay())), moved=1.0), "stuck", 0
    ),
    "owners are told apart by their names": Mutant(
        Rules(placement=lambda: ClaimsByName(PLACEMENT), ledger=lambda: Ledger(fleet=OwnersByName()), moved=1.0),
        "M5:",
        0,
    ),
    "a claim does not look at its destination": Mutant(_placement(AnyDestination), "M5:", 28),
    "nodes are not told again whose they are": Mutant(_moves(MarksOnce, OFTEN), ("stuck", "M3:"), 1),
    "the result of any attempt counts": Mutant(_admission(AnyAttemptCounts), "I5:", 17),
    "an end is not final": Mutant(_admission(EndNotFinal), "I5:", 2),
    "a charge ends before its release": Mutant(_admission(ChargeEndsEarly), "I2:", 0),
    "what is charged is forgotten": Mutant(_admission(QuotaForgotten), "I2:", 0),
    "anybody is ended for anybody": Mutant(_admission(AnybodyGoes), "I8:", 8),
    "what leaves is not counted before others are ended": Mutant(_admission(LeavingForgotten), "I8:", 0),
    "an attempt begins beside the one before": Mutant(_admission(EarlierForgotten), "I2:", 0),
    "a withdrawal that comes first is forgotten": Mutant(_admission(WithdrawalForgotten), "stuck", 23),
    "a job's facts are said once": Mutant(_admission(JobsNotRepeated), "stuck", 1),
    "a grant's facts are said once": Mutant(Rules(ledger=GrantsNotRepeated), "stuck", 1),
    "a result is said once": Mutant(Rules(dispatch=lambda: NothingTwice(DISPATCH)), "stuck", 53),
}
"""Safety is found by what the judge says, what is never said again by the calm in which nothing comes to its end."""
