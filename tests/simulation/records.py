"""Comparing what everybody remembers, in memory: placement's reconciler with its real core; see ``ledger``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from libs.errors import UnavailableError
from libs.leases import PENDING
from schemas.base import fact_type
from schemas.ids import GrantId, JobId, fact_id, run_name
from schemas.lifecycle import PartState
from schemas.workload import DriftCleared, DriftFound, DriftKind, GrantIssued
from services.placement.core.drift import HEALS, Held, Known, LedgerPart, Snapshot, Verdict, judge
from services.placement.core.grant import Grant, Part
from services.placement.handlers.drift import SAID_AGAIN, SCOPE, STOPPED_A_ROUND
from services.placement.settings import Settings
from tests.simulation.leases import MemoryLeases
from tests.simulation.ledger import Ledger
from tests.simulation.ledger_facts import said_of_ends
from tests.simulation.store import Turn


@dataclass(frozen=True, slots=True)
class Records:
    """What admission and dispatch answered. None: no answer, or a part of one."""

    charged: Mapping[tuple[JobId, int], int] | None
    open_runs: Mapping[GrantId, str] | None


def compare(turn: Turn[Ledger], records: Records, leases: MemoryLeases, settings: Settings) -> None:
    """Compare once: say what differs for long, and do what the truth is clear about."""
    ledger = turn.state
    seen = snapshot(turn, records, leases, silent_seconds=settings.suspect_after_seconds)
    lasts, limit = settings.drift_after_seconds, settings.drifts_a_round
    verdict = judge(seen, list(ledger.drifts.values()), now=turn.now, lasts_seconds=lasts, limit=limit)
    _note(turn, verdict)
    _heal(turn, verdict.found)


def snapshot(turn: Turn[Ledger], records: Records, leases: MemoryLeases, *, silent_seconds: float) -> Snapshot:
    """Return all that is compared."""
    ledger = turn.state
    missing: list[str] | None = None
    ghosts: list[str] | None = None
    try:
        found = leases.read_many([*ledger.fleet.devices])
        missing = [lease.device for lease in ledger.live_leases() if found[lease.device] != lease]
        idle = [d for d, each in ledger.fleet.devices.items() if not each.retired and d not in ledger.lines]
        ghosts = [device for device in idle if (lease := found[device]) is not None and lease.epoch > PENDING]
    except UnavailableError:
        pass
    return Snapshot(
        parts=[_part(turn, part, grant, silent_seconds) for part, grant in ledger.live_parts()],
        held=[
            Held(node, grant, _state(ledger, grant, node))
            for node, held in ledger.fleet.held.items()
            for grant, _ in held
        ],
        leases_missing=missing,
        leases_of_nobody=ghosts,
        charged=records.charged,
        open_runs=records.open_runs,
    )


def _part(turn: Turn[Ledger], part: Part, grant: Grant, silent_seconds: float) -> LedgerPart:
    node = turn.state.fleet.nodes[part.node]
    since = turn.now - timedelta(seconds=silent_seconds)
    claimed_at = part.claimed_at or since
    heard = node.heard_at is not None and node.heard_at > max(since, claimed_at) and not node.blind
    return LedgerPart(grant.id, grant.job, grant.attempt, part.node, part.state, heard, len(part.devices))


def _state(ledger: Ledger, grant: GrantId, node: object) -> PartState | None:
    known = ledger.grants.get(grant)
    part = next((part for part in known.parts if part.node == node), None) if known else None
    return part.state if part else None


def _note(turn: Turn[Ledger], verdict: Verdict) -> None:
    ledger = turn.state
    for new in verdict.new:
        ledger.drifts[new] = Known(new, turn.now, None, ledger.drift_versions.get(new, 0))
    for each in verdict.found:
        of, version = each.difference, each.version + 1
        ledger.drifts[of] = replace(each, found_at=turn.now, version=version)
        told = DriftFound(
            drift=of.id,
            kind=of.kind,
            subject=of.subject,
            node=of.node,
            heals=of.kind in HEALS,
            since=each.since,
            found_at=turn.now,
        )
        turn.emit(told, scope=SCOPE, key=of.id, version=version)
    for each in verdict.cleared:
        of, version = each.difference, each.version + 1
        ledger.drift_versions[of] = version
        gone = DriftCleared(drift=of.id, kind=of.kind, subject=of.subject, cleared_at=turn.now)
        turn.emit(gone, scope=SCOPE, key=of.id, version=version)
    for each in (*verdict.cleared, *verdict.dropped):
        del ledger.drifts[each.difference]


def _heal(turn: Turn[Ledger], found: Sequence[Known]) -> None:
    again = SAID_AGAIN - {DriftKind.CHARGE_WITHOUT_GRANT}
    grants = {each.difference.subject for each in found if each.difference.kind in again}
    attempts = {e.difference.subject for e in found if e.difference.kind is DriftKind.CHARGE_WITHOUT_GRANT}
    if grants or attempts:
        all_ = turn.state.grants.values()
        turn.say_again(_said_of(g for g in all_ if g.id in grants or run_name(g.job, g.attempt) in attempts), asks=True)
    over = [each.difference for each in found if each.difference.kind is DriftKind.HOLDER_OF_ENDED_GRANT]
    for each in over[:STOPPED_A_ROUND]:
        if each.node is not None:
            turn.state.seals.setdefault((GrantId(each.subject), each.node), (turn.now, 0))


def _said_of(grants: Iterable[Grant]) -> list[UUID]:
    return [each for g in grants for each in (fact_id(fact_type(GrantIssued), g.id, 1), *said_of_ends(g))]
