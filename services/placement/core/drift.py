"""Where the ledger and what others remember differ. Pure: snapshots in, differences out.

A difference is no drift yet: facts are on their way all the time. It becomes one when it lasts. Nothing here is an
order: what heals is healed one by one by whoever owns it, and nothing is stopped because something was not named.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from schemas.ids import DriftId, GrantId, JobId, NodeId, derive, run_name
from schemas.lifecycle import PartState
from schemas.workload import DriftKind

HEALS: Final = frozenset(
    {
        DriftKind.LEASE_MISSING,
        DriftKind.LEASE_OF_NOBODY,
        DriftKind.CHARGE_WITHOUT_GRANT,
        DriftKind.RUN_WITHOUT_GRANT,
        DriftKind.GRANT_WITHOUT_RUN,
        DriftKind.HOLDER_OF_ENDED_GRANT,
        DriftKind.CLAIM_WITHOUT_HOLDER,
    }
)
"""The truth is clear: renewal, expiry, the sweeps, a stop by name, or dispatch's look mends it."""
_LEASES: Final = frozenset({DriftKind.LEASE_MISSING, DriftKind.LEASE_OF_NOBODY})
_CHARGES: Final = frozenset({DriftKind.CHARGE_WITHOUT_GRANT, DriftKind.GRANT_WITHOUT_CHARGE})
_RUNS: Final = frozenset({DriftKind.RUN_WITHOUT_GRANT, DriftKind.GRANT_WITHOUT_RUN})

Attempt = tuple[JobId, int]


class Difference(NamedTuple):
    """Two records that tell something different about a subject."""

    kind: DriftKind
    subject: str
    node: NodeId | None = None

    @property
    def id(self) -> DriftId:
        """The same for the same difference."""
        return DriftId(derive("drift", self.kind, self.subject, self.node or ""))


class LedgerPart(NamedTuple):
    """A live part. ``heard``: its node is heard and not blind, so that what it does not name is not there."""

    grant: GrantId
    job: JobId
    attempt: int
    node: NodeId
    state: PartState
    heard: bool
    devices: int


class Held(NamedTuple):
    """What a node named in its last report. ``state``: of that part in the ledger; None: it knows of none."""

    node: NodeId
    grant: GrantId
    state: PartState | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is compared. None: could not be asked, so that nothing about it is found or cleared."""

    parts: Collection[LedgerPart]
    held: Collection[Held]
    leases_missing: Collection[str] | None
    leases_of_nobody: Collection[str] | None
    charged: Mapping[Attempt, int] | None
    open_runs: Mapping[GrantId, str] | None

    @property
    def unknown(self) -> frozenset[DriftKind]:
        """The kinds that this snapshot can say nothing about."""
        kinds = _LEASES if self.leases_missing is None or self.leases_of_nobody is None else frozenset()
        kinds |= _CHARGES if self.charged is None else frozenset()
        return kinds | (_RUNS if self.open_runs is None else frozenset())


def differences(seen: Snapshot) -> set[Difference]:
    """Return every difference, of those kinds that could be looked at."""
    found = {*_of_leases(seen), *_of_charges(seen), *_of_runs(seen), *_of_nodes(seen)}
    return {each for each in found if each.kind not in seen.unknown}


def _of_leases(seen: Snapshot) -> Iterator[Difference]:
    for device in seen.leases_missing or ():
        yield Difference(DriftKind.LEASE_MISSING, device)
    for device in seen.leases_of_nobody or ():
        yield Difference(DriftKind.LEASE_OF_NOBODY, device)


def _of_charges(seen: Snapshot) -> Iterator[Difference]:
    """More is charged than is held, or less: parts are released one by one, and so is what they are charged."""
    live: Counter[Attempt] = Counter()
    for part in seen.parts:
        live[part.job, part.attempt] += part.devices
    charged = Counter(seen.charged or {})
    for job, attempt in charged - live:
        yield Difference(DriftKind.CHARGE_WITHOUT_GRANT, run_name(job, attempt))
    for job, attempt in live - charged:
        yield Difference(DriftKind.GRANT_WITHOUT_CHARGE, run_name(job, attempt))


def _of_runs(seen: Snapshot) -> Iterator[Difference]:
    live = {part.grant for part in seen.parts}
    wanted = {part.grant for part in seen.parts if part.state is not PartState.REVOKING}
    runs = set(seen.open_runs or ())
    for grant in runs - live:
        yield Difference(DriftKind.RUN_WITHOUT_GRANT, grant)
    for grant in wanted - runs:
        yield Difference(DriftKind.GRANT_WITHOUT_RUN, grant)


def _of_nodes(seen: Snapshot) -> Iterator[Difference]:
    named = {(held.node, held.grant) for held in seen.held}
    for held in seen.held:
        if held.state is None:
            yield Difference(DriftKind.HOLDER_OF_UNKNOWN_GRANT, held.grant, held.node)
        elif held.state is PartState.RELEASED:
            yield Difference(DriftKind.HOLDER_OF_ENDED_GRANT, held.grant, held.node)
    for part in seen.parts:
        if part.state is PartState.CLAIMED and part.heard and (part.node, part.grant) not in named:
            yield Difference(DriftKind.CLAIM_WITHOUT_HOLDER, part.grant, part.node)


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that was seen before. ``found_at``: since when it is a drift; ``version``: of its last fact."""

    difference: Difference
    since: datetime
    found_at: datetime | None
    version: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison means: to be noted for the first time, to be said as drift, as gone, or dropped unsaid."""

    new: tuple[Difference, ...]
    found: tuple[Known, ...]
    cleared: tuple[Known, ...]
    dropped: tuple[Known, ...]


def judge(seen: Snapshot, known: Collection[Known], *, now: datetime, lasts_seconds: float, limit: int) -> Verdict:
    """Return what is to be noted and said. ``limit`` bounds what is noted in one round: a flood is told, not copied."""
    present = differences(seen)
    before = {each.difference: each for each in known}
    gone = [each for each in known if each.difference not in present and each.difference.kind not in seen.unknown]
    lasting = [
        each
        for each in known
        if each.found_at is None and each.difference in present and (now - each.since).total_seconds() >= lasts_seconds
    ]
    return Verdict(
        new=tuple(sorted(present - before.keys()))[:limit],
        found=tuple(lasting),
        cleared=tuple(each for each in gone if each.found_at is not None),
        dropped=tuple(each for each in gone if each.found_at is None),
    )
