"""Comparing what everybody remembers, all the time: ledger, leases, charges, runs, and what nodes name."""

from collections.abc import Collection, Sequence
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from libs.errors import RefusedError, UnavailableError
from libs.leases import PENDING, Leases
from libs.service import Service, Turn
from schemas.calls import ChargesPage, PageQuery, RunsPage
from schemas.ids import GrantId
from schemas.workload import DriftCleared, DriftFound, DriftKind
from services.placement.core.drift import HEALS, Known, Snapshot, Verdict, judge
from services.placement.settings import Settings
from services.placement.store import drift as store
from services.placement.store import renewal

SCOPE: Final = "fleet"
STOPPED_A_ROUND: Final = 8  # processes of ended grants: one by one, whatever a report says
SAID_AGAIN: Final = frozenset(
    {DriftKind.CHARGE_WITHOUT_GRANT, DriftKind.RUN_WITHOUT_GRANT, DriftKind.GRANT_WITHOUT_RUN}
)
P = TypeVar("P", ChargesPage, RunsPage)


class Reconciler:
    """Asks, compares, and says what differs for longer than facts are on their way.

    It heals through what heals anyhow: the renewal of leases, facts said again, seals that stop what a grant's end left
    behind. Whoever cannot be asked is left out of the round: no answer and a part of one are not "nothing".
    """

    def __init__(self, service: Service, leases: Leases, settings: Settings) -> None:
        self._service = service
        self._leases = leases
        self._settings = settings

    async def run(self) -> None:
        """Compare once. Raises TransientError."""
        charges = await self._pages("call.job.charges", ChargesPage)
        runs = await self._pages("call.run.open", RunsPage)
        missing, of_nobody = await self._compare_leases()
        async with self._service.turn() as turn:
            if not await store.alone(turn.connection):
                return
            seen = Snapshot(
                parts=await store.live_parts(turn.connection, silent_seconds=self._settings.suspect_after_seconds),
                held=await store.held(turn.connection),
                leases_missing=missing,
                leases_of_nobody=of_nobody,
                charged=None
                if charges is None
                else {(c.job, c.attempt): c.devices for page in charges for c in page.items},
                open_runs=None if runs is None else {r.grant: r.state for page in runs for r in page.items},
            )
            await self._judge(turn, seen)

    async def _judge(self, turn: Turn, seen: Snapshot) -> None:
        known = await store.known(turn.connection)
        verdict = judge(
            seen,
            known,
            now=turn.now,
            lasts_seconds=self._settings.drift_after_seconds,
            limit=self._settings.drifts_a_round,
        )
        await store.note(turn.connection, verdict.new)
        await store.mark_found(turn.connection, verdict.found)
        await store.mark_gone(turn.connection, (*verdict.cleared, *verdict.dropped))
        _say(turn, verdict)
        await _heal(turn, verdict.found)
        for drift in verdict.found:
            self._service.log.warning(
                "records differ", kind=drift.difference.kind, subject=drift.difference.subject, since=drift.since
            )

    async def _pages(self, subject: str, kind: type[P]) -> list[P] | None:
        """Return all pages, or None: not answered whole."""
        pages: list[P] = []
        after: str | None = ""
        try:
            while after is not None:
                body = await self._ask(subject, PageQuery(after=after))
                pages.append(kind.model_validate_json(body))
                after = pages[-1].following
        except (UnavailableError, RefusedError, ValidationError) as error:
            self._service.log.info("not compared", subject=subject, why=str(error))
            return None
        return pages

    async def _ask(self, subject: str, question: BaseModel) -> bytes:
        return await self._service.call(subject, question, timeout=self._settings.reconcile_call_seconds)

    async def _compare_leases(self) -> tuple[Collection[str] | None, Collection[str] | None]:
        """Return devices whose lease is missing or another's, and idle ones that have one; None: Redis is away."""
        async with self._service.turn() as turn:
            live = await renewal.live_leases(turn.connection)
            idle = await store.idle_devices(turn.connection)
        try:
            missing = await self._leases.verify(live)
            found = await self._leases.read_many(idle)
        except UnavailableError:
            return None, None
        ghosts = [device for device, lease in found.items() if lease is not None and lease.epoch > PENDING]
        return [lease.device for lease in missing], ghosts


def _say(turn: Turn, verdict: Verdict) -> None:
    for each in verdict.found:
        of = each.difference
        found = DriftFound(
            drift=of.id,
            kind=of.kind,
            subject=of.subject,
            node=of.node,
            heals=of.kind in HEALS,
            since=each.since,
            found_at=turn.now,
        )
        turn.emit(found, scope=SCOPE, key=of.id, version=each.version + 1)
    for each in verdict.cleared:
        of = each.difference
        cleared = DriftCleared(drift=of.id, kind=of.kind, subject=of.subject, cleared_at=turn.now)
        turn.emit(cleared, scope=SCOPE, key=of.id, version=each.version + 1)


async def _heal(turn: Turn, found: Sequence[Known]) -> None:
    """Do what the truth is clear about: say again what was not heard, and stop what an ended grant left, one by one."""
    subjects = {kind: [each.difference for each in found if each.difference.kind is kind] for kind in DriftKind}
    grants = [
        GrantId(each.subject) for kind in SAID_AGAIN - {DriftKind.CHARGE_WITHOUT_GRANT} for each in subjects[kind]
    ]
    attempts = [each.subject for each in subjects[DriftKind.CHARGE_WITHOUT_GRANT]]
    if grants or attempts:
        await turn.say_again(await store.said_of(turn.connection, grants, attempts), asks=True)
    over = [
        (GrantId(each.subject), each.node)
        for each in subjects[DriftKind.HOLDER_OF_ENDED_GRANT][:STOPPED_A_ROUND]
        if each.node is not None
    ]
    if over:
        await store.stop_soon(turn.connection, over)
