"""Placement's ledger in memory: what its store keeps as rows, kept as dictionaries, by the same rules.

Each method does what the function of that name in ``services/placement/store`` does; the core decides here as there.
It is held to the real store by tests/integration/placement/test_ledger_model.py.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from libs.errors import ConflictError
from libs.leases import Lease
from schemas.calls import Seal, SealAnswer
from schemas.ids import DeviceId, GrantId, JobId, NodeId, TenantId, grant_id
from schemas.lifecycle import PartState
from schemas.workload import GrantedDevice, ReleaseProof
from services.placement.core.claims import NodeDevice
from services.placement.core.decide import Placement
from services.placement.core.drift import Difference, Known
from services.placement.core.grant import Grant, Part, issue
from services.placement.core.recovery import Rebuilt
from services.placement.store.attempts import Ended
from services.placement.store.overdue import Overdue
from services.placement.store.wall import Walled
from tests.simulation.attempt_tables import Attempt, AttemptTables
from tests.simulation.comeback_tables import ComebackTables
from tests.simulation.fleet_tables import FleetTables
from tests.simulation.ledger_facts import is_late, is_stuck, said_of_ends, unanswered
from tests.simulation.recovery_tables import RecoveryTables, undoubted
from tests.simulation.store import BreachError

RESTORED: Final = Lease("*", "restored from a backup", 0)
TERM: Final = 2**32
EPOCHS_SINCE, EPOCHS_A_SECOND = datetime(2025, 1, 1, tzinfo=UTC), 16_384  # as ``deploy.embedded.backup`` has it


@dataclass(slots=True)
class Ledger:
    """The tables. Rows are frozen, so that a copy is a snapshot."""

    fleet: FleetTables = field(default_factory=FleetTables)
    attempts: AttemptTables = field(default_factory=AttemptTables)
    grants: dict[GrantId, Grant] = field(default_factory=dict)
    live: dict[GrantId, None] = field(default_factory=dict)
    lines: dict[DeviceId, tuple[GrantId, NodeId]] = field(default_factory=dict)
    seals: dict[tuple[GrantId, NodeId], tuple[datetime, int]] = field(default_factory=dict)
    run_over: set[GrantId] = field(default_factory=set)
    stops: list[Lease] = field(default_factory=list)
    epochs: int = 0
    drifts: dict[Difference, Known] = field(default_factory=dict)
    drift_versions: dict[Difference, int] = field(default_factory=dict)
    recovery: RecoveryTables = field(default_factory=RecoveryTables)
    comebacks: ComebackTables = field(default_factory=ComebackTables)

    def copy(self) -> "Ledger":
        """Return what a transaction may change without being seen."""
        return type(self)(
            *(self.fleet.copy(), self.attempts.copy(), dict(self.grants), dict(self.live), dict(self.lines)),
            *(dict(self.seals), set(self.run_over), list(self.stops), self.epochs, dict(self.drifts)),
            *(dict(self.drift_versions), self.recovery.copy(), self.comebacks.copy()),
        )

    def said_of_all_ends(self, ids: Collection[GrantId]) -> list[UUID]:
        """Return what was said of these grants' ends."""
        return [said for grant in self.load(ids).values() for said in said_of_ends(grant)]

    def answers_of_ends(self, over: Sequence[tuple[JobId, int, TenantId, UUID]]) -> dict[UUID, UUID]:
        """Return what was said of the grants' ends, and the ends of their attempts, which it answers from now on."""
        answers: dict[UUID, UUID] = {}
        for job, attempt, _, cause in over:
            for grant in self._grants_of((job, attempt)):
                answers |= dict.fromkeys(said_of_ends(grant), cause)
        return answers

    def live_grants(self, ended: Sequence[Ended]) -> dict[GrantId, Attempt]:
        """Return the live grants of attempts that are over."""
        keys = [(item.job, item.attempt) for item in ended]
        return {grant.id: key for key in keys for grant in self._grants_of(key) if grant.live}

    # grants

    def grant(self, placements: Sequence[Placement], now: datetime, *, start_seconds: int) -> Walled:
        """Grant each gang that still can be, whole: the wall (R1)."""
        able = [each for each in placements if self.waits(each) and self.is_free(each)]
        epochs = self.draw(len(able))
        deadline = now + timedelta(seconds=start_seconds)
        new = [
            (each, self.make(each, epoch, now=now, deadline=deadline)) for each, epoch in zip(able, epochs, strict=True)
        ]
        granted = [grant for placement, grant in new if self._insert(placement, grant)]
        let_through = {grant.id for grant in granted}
        lost = [each for each in placements if each not in [p for p, grant in new if grant.id in let_through]]
        return Walled(tuple(granted), tuple(lost))

    def draw(self, count: int) -> list[int]:
        """Draw epochs, after the devices were looked at under their locks [B2]."""
        self.epochs += count
        return list(range(self.epochs - count + 1, self.epochs + 1))

    def load(self, ids: Iterable[GrantId]) -> dict[GrantId, Grant]:
        """Return the grants that are known, in the order of their ids."""
        return {grant: self.recovery.doubted(self.grants[grant]) for grant in sorted(set(ids)) if grant in self.grants}

    def save(self, after: Grant, now: datetime) -> None:
        """Write what changed: the grant, its parts, and the lines of parts that were released or rebound."""
        before = self.recovery.doubted(self.grants[after.id])
        self.grants[after.id] = replace(after, parts=tuple(map(undoubted, after.parts)))
        if not after.live:
            self.live.pop(after.id, None)
        for old, new in zip(before.parts, after.parts, strict=True):
            if new is not old:
                self._save_part(after, old, new, now)

    def cause_of(self, grant: Grant) -> UUID | None:
        """Return the fact that a grant answers: the last that admission said of its attempt."""
        return self.attempts.rows[grant.job, grant.attempt].cause

    def claimed_under(self, ended: Mapping[NodeId, Collection[str]]) -> set[GrantId]:
        """Return the grants with a part that was claimed under one of these boots and is not released."""
        held = {PartState.CLAIMED, PartState.REVOKING}
        return {
            grant
            for grant in self.live
            for part in self.grants[grant].parts
            if part.state in held and part.boot in ended.get(part.node, ())
        }

    def devices(self, ids: Collection[DeviceId]) -> dict[DeviceId, NodeDevice]:
        """Return devices with the grants that hold them."""
        found: dict[DeviceId, NodeDevice] = {}
        for device in sorted(ids):
            entry = self.fleet.devices.get(device)
            if entry and not entry.retired:
                grant, _ = self.lines.get(device) or (self.fleet.holds.grant_on(device), None)
                known = (entry.slot, entry.node, entry.gpu_class, entry.owner, grant, entry.owner_epoch)
                found[device] = NodeDevice(*known, occupied=self.recovery.is_occupied(device))
        return found

    def held_on(self, nodes: Collection[NodeId]) -> dict[NodeId, list[GrantId]]:
        """Return the grants that are live on each of these nodes."""
        held: dict[NodeId, list[GrantId]] = {node: [] for node in sorted(nodes)}
        for part, grant in self.live_parts():
            if part.node in held:
                held[part.node].append(grant.id)
        return held

    def live_parts(self) -> list[tuple[Part, Grant]]:
        """Return the parts that hold devices."""
        return [(part, self.grants[grant]) for grant in self.live for part in self.grants[grant].parts if part.live]

    def drained_grants(self) -> dict[GrantId, str]:
        """Return the grants that are to end because a node of theirs is to be drained, with the mark's reason."""
        found: dict[GrantId, str] = {}
        for part, grant in self.live_parts():
            node = self.fleet.nodes[part.node]
            begun = part.state in {PartState.ISSUED, PartState.CLAIMED}
            if node.drained and begun and grant.revoked_at is None:
                found[grant.id] = f"{node.info.name}: {node.marks[0].reason}"
        return found

    # what waits for time or proof

    def seals_due(self, now: datetime, limit: int) -> list[Seal]:
        """Take the seals to ask for now; the next ask comes after a growing pause."""
        due = sorted((at, key) for key, (at, _) in self.seals.items() if at <= now)[:limit]
        for _, key in due:
            asks = self.seals[key][1]
            self.seals[key] = (now + timedelta(seconds=2 ** min(asks, 5)), asks + 1)
        return [self._seal(*key) for _, key in due]

    def seal_soon(self, grants: Collection[GrantId], now: datetime) -> bool:
        """Let the seals of these grants be asked for at once."""
        waiting = [key for key in self.seals if key[0] in grants and self._part(*key).state is PartState.REVOKING]
        self.seals |= dict.fromkeys(waiting, (now, 0))
        return bool(waiting)

    def note_clear(self, answers: Sequence[SealAnswer]) -> None:
        """Ask no more about parts that were released on a person's word and are sealed now."""
        for answer in answers:
            key = (answer.grant, answer.node)
            if key in self.seals and answer.revocation == self.grants[answer.grant].revocation_of(self._part(*key)):
                self._clear(key)

    def note_boots_over(self, ended: Mapping[NodeId, Collection[str]]) -> None:
        """Ask no more about parts that were released on a person's word and whose boot has ended since."""
        for key in list(self.seals):
            if self._part(*key).boot in ended.get(key[1], ()):
                self._clear(key)

    def overdue(self, now: datetime, *, stuck_seconds: int) -> Overdue:
        """Return what is past its deadline (R7)."""
        late = [(p, g) for p, g in self.live_parts() if p.state is PartState.ISSUED and is_late(g, now)]
        unclaimed = [g.id for _, g in late if not any(part.doubtful for part in self.recovery.doubted(g).parts)]
        stuck = [
            (g.id, p.node)
            for p, g in self.live_parts()
            if p.state is PartState.REVOKING and p.escalated_at is None and is_stuck(g, p, now, stuck_seconds)
        ]
        return Overdue(tuple(dict.fromkeys(unclaimed)), tuple(stuck))

    def unanswered(self, now: datetime, *, quiet_seconds: int) -> list[UUID]:
        """Return the facts to say again."""
        limit = now - timedelta(seconds=quiet_seconds)
        found: list[UUID] = []
        for grant in self.grants.values():
            over = grant.id in self.run_over
            done = not grant.live and over and self.attempts.rows[grant.job, grant.attempt].state == "Over"
            if not done and (grant.revoked_at or grant.issued_at) < limit:
                found += unanswered(grant, run_over=over)
        return found + self.attempts.unanswered(limit)

    # leases

    def live_leases(self) -> list[Lease]:
        """Return the lease of every device with a live line."""
        return [Lease(device, grant, self.grants[grant].epoch) for device, (grant, _) in self.lines.items()]

    def ghosts(self, found: Sequence[Lease]) -> list[Lease]:
        """Return the leases whose grant the ledger knows and holds as over."""
        return [
            lease
            for lease in found
            if self._knows(lease) and self.lines.get(DeviceId(lease.device), ("",))[0] != lease.grant
        ]

    def stop_when_behind(self, higher: Sequence[Lease]) -> list[Lease]:
        """Stop all new grants when a lease stands above the highest epoch that the ledger gave its device (L5)."""
        ahead = [
            lease
            for lease in higher
            if lease.device in self.fleet.devices
            and (lease.epoch > self.fleet.devices[DeviceId(lease.device)].last_epoch or not self._knows(lease))
        ]
        self.stops += [lease for lease in ahead if lease not in self.stops]
        return ahead

    # after it went back (R12)

    def go_back(self, now: datetime) -> None:
        """Stop all new grants, and begin a new term: this is an older ledger than the world knows."""
        self.stops = [RESTORED]
        self.recovery.stopped_at = now
        self.fleet.go_back(now)
        self.epochs = max(self.epochs + TERM, int((now - EPOCHS_SINCE).total_seconds()) * EPOCHS_A_SECOND)

    def untold(self) -> list[NodeId]:
        """Return the nodes that have not said what they run since the ledger last went back."""
        nodes = self.fleet.nodes.items()
        return [n for n, each in nodes if each.info.reported and not each.retired and not self.recovery.has_told(n)]

    def slots(self) -> dict[DeviceId, tuple[GrantedDevice, str | None]]:
        """Return all devices with their ordinals and classes."""
        return {device: (entry.slot, entry.gpu_class) for device, entry in self.fleet.devices.items()}

    def holding(self, devices: Collection[DeviceId]) -> dict[tuple[GrantId, NodeId], bool]:
        """Return which parts have live lines on these devices, and whether the results of their runs were said."""
        found = {self.lines[device] for device in devices if device in self.lines}
        return {part: part[0] in self.run_over for part in found}

    def insert_again(self, found: Rebuilt, now: datetime) -> None:
        """Insert a grant as it must have been, with the attempt it needs. Raises ConflictError."""
        grant = replace(found.grant, issued_at=now, parts=tuple(sorted(found.grant.parts, key=lambda part: part.node)))
        self.attempts.granted_before((grant.job, grant.attempt), grant.tenant, found.number, now)
        if grant.id in self.grants or self.collides(grant):
            raise ConflictError(f"{grant.id} does not fit")
        self.grants[grant.id] = grant
        self.live[grant.id] = None
        self.lines |= {d: (grant.id, part.node) for part in grant.parts for d in part.device_ids}
        lower = [device for device in found.devices if self.fleet.devices[device].last_epoch < grant.epoch]
        self.fleet.raise_epochs(dict.fromkeys(lower, grant.epoch))
        self.recovery.taken_up(grant.id, grant.epoch)

    # below

    def _grants_of(self, key: Attempt) -> list[Grant]:
        row = self.attempts.rows.get(key)
        ids = [grant_id(*key, number) for number in range(1, (row.grants if row else 0) + 1)]
        return [self.grants[each] for each in ids if each in self.grants]

    def waits(self, placement: Placement) -> bool:
        """Whether the attempt still waits for devices."""
        row = self.attempts.rows.get((placement.pending.job, placement.pending.attempt))
        return row is not None and row.state == "Pending"

    def is_free(self, placement: Placement) -> bool:
        """Whether all devices of a placement are there, offered, and without a line."""
        if not self.fleet.is_as_decided(placement):
            return False
        for device in placement.devices:
            entry = self.fleet.devices.get(device.device)
            if entry is None or entry.retired or entry.unmanaged or device.device in self.lines:
                return False
            if self.recovery.is_occupied(device.device) or entry.gpu_class != placement.pending.gpu_class:
                return False
            if not self.fleet.nodes[entry.node].offers or not self.recovery.has_told(entry.node):
                return False
        return True

    def make(self, placement: Placement, epoch: int, *, now: datetime, deadline: datetime) -> Grant:
        """Return the grant of a placement."""
        pending = placement.pending
        number = self.attempts.rows[pending.job, pending.attempt].grants + 1
        return Grant(
            id=grant_id(pending.job, pending.attempt, number),
            epoch=epoch,
            job=pending.job,
            attempt=pending.attempt,
            tenant=pending.tenant,
            name=pending.name,
            queue=pending.queue,
            cluster=placement.cluster,
            gpu_class=pending.gpu_class,
            work=pending.work,
            issued_at=now,
            start_deadline=deadline,
            parts=tuple(
                Part(part.node.node, part.node.name, part.replicas, owner_epoch=part.node.owner_epoch)
                for part in placement.parts
            ),
        )

    def collides(self, new: Grant) -> bool:
        """Whether the constraints refuse a grant: a live line on a device, or a live grant of the attempt."""
        lines = (self.lines, self.fleet.holds.lines)
        taken = any(device in each for part in new.parts for device in part.device_ids for each in lines)
        return taken or any(grant.live for grant in self._grants_of((new.job, new.attempt)))

    def _insert(self, placement: Placement, new: Grant) -> bool:
        devices = [device.device for device in placement.devices]
        if self.collides(new):
            return False
        if any(self.fleet.devices[device].last_epoch >= new.epoch for device in devices):
            raise BreachError(f"I1: an epoch of a device of {new.id} does not rise to {new.epoch}")
        parts = tuple(sorted(new.parts, key=lambda part: part.node))
        self.grants[new.id] = replace(issue(new).grant, parts=parts)
        self.live[new.id] = None
        self.lines |= {d: (new.id, part.node) for part in new.parts for d in part.device_ids}
        self.fleet.raise_epochs(dict.fromkeys(devices, new.epoch))
        self.attempts.granted((new.job, new.attempt))
        return True

    def _save_part(self, grant: Grant, old: Part, new: Part, now: datetime) -> None:
        key = (grant.id, new.node)
        if new.state is PartState.REVOKING:
            self.seals.setdefault(key, (now, 0))
        elif new.proof is ReleaseProof.OVERRIDE:
            self.seals[key] = (now, 0)
        else:
            self.seals.pop(key, None)
        if old.live and (not new.live or new.replicas != old.replicas):
            for device in old.device_ids:
                del self.lines[device]
            if new.live:
                self._bind(grant, new)

    def _bind(self, grant: Grant, part: Part) -> None:
        taken = [device for device in part.device_ids if device in self.lines or device in self.fleet.holds.lines]
        if taken:
            raise BreachError(f"I1: {taken} is held, and {grant.id} is bound to it")
        self.lines |= dict.fromkeys(part.device_ids, (grant.id, part.node))
        behind = [d for d in part.device_ids if self.fleet.devices[d].last_epoch < grant.epoch]
        self.fleet.raise_epochs(dict.fromkeys(behind, grant.epoch))

    def _clear(self, key: tuple[GrantId, NodeId]) -> None:
        if self._part(*key).state is PartState.RELEASED:
            del self.seals[key]

    def _part(self, grant: GrantId, node: NodeId) -> Part:
        part = self.grants[grant].part(node)
        assert part is not None, (grant, node)
        return part

    def _seal(self, grant: GrantId, node: NodeId) -> Seal:
        held, part = self.grants[grant], self._part(grant, node)
        revocation = held.revocation_of(part)
        assert revocation is not None, held
        return Seal(
            run=held.run,
            grant=grant,
            epoch=held.epoch,
            node=node,
            devices=part.device_ids,
            revocation=revocation,
            stop=True,
            grace_seconds=held.work.grace_seconds,
        )

    def _knows(self, lease: Lease) -> bool:
        grant = self.grants.get(GrantId(lease.grant))
        return grant is not None and grant.epoch == lease.epoch
