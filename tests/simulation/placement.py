"""A replica of placement: its loops, each cut into the steps between which a process may stand still or die."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from libs.errors import UnavailableError
from libs.leases import PENDING, Lease
from schemas.calls import Claim, ClaimAnswer, HoldersAnswer, Seal, SealAnswer
from schemas.ids import NodeId, run_name
from services.placement.core.decide import Decision, Pending, Placement
from services.placement.core.recovery import Forgotten, proved_over, seal_of
from services.placement.settings import Settings
from services.placement.store.wall import Walled
from tests.simulation.comebacks import check_decision
from tests.simulation.ground import Ground
from tests.simulation.host import Host
from tests.simulation.leases import MemoryLeases
from tests.simulation.ledger import Ledger
from tests.simulation.network import Reply
from tests.simulation.placement_desk import LedgerTurn, Outcome, PlacementDesk
from tests.simulation.records import Records, compare
from tests.simulation.recovery_desk import strangers
from tests.simulation.store import Store

A = TypeVar("A")
NOTHING: Final = Walled()
AskHolders = Callable[[NodeId, Callable[[HoldersAnswer | None], None]], None]
AskSeal = Callable[[Seal, Callable[[SealAnswer | None], None]], None]


class PlacementReplica(Host[Ledger]):
    """One replica. ``ask_seal`` and ``ask_holders`` ask the agent of a node, ``ask_records`` the other services."""

    def __init__(
        self,
        store: Store[Ledger],
        ground: Ground,
        desk: PlacementDesk,
        *,
        name: str,
        leases: MemoryLeases,
        ask_seal: AskSeal,
        ask_holders: AskHolders,
        ask_records: Callable[[], Records],
    ) -> None:
        super().__init__(store, ground)
        self.name = name
        self.desk, self.leases, self._ask_seal = desk, leases, ask_seal
        self._ask_holders, self._ask_records = ask_holders, ask_records
        settings = desk.settings
        self.forget()
        self._cycle = self.loop(self.cycle, settings.cycle_seconds)
        self._freed = self.loop(self.give_back, settings.renew_seconds)
        self._answers = self.loop(self.take_seals, settings.seal_seconds)
        self._seals = self.loop(self.ask_seals, settings.seal_seconds)
        self._deadlines = self.loop(self.watch, settings.deadline_seconds)
        self.loop(self.renew, settings.renew_seconds)
        self.loop(self.compare, settings.reconcile_seconds)
        self.loop(self.recover, settings.recovery_seconds)

    @property
    def settings(self) -> Settings:
        """The numbers the replica works by."""
        return self.desk.settings

    def forget(self) -> None:
        """Lose what only the process knew."""
        self._cycling = False
        self._waiting: list[Lease] = []
        self._sealed: list[SealAnswer] = []
        self._claims: list[tuple[Claim, Reply[ClaimAnswer]]] = []
        self._listens_since = self.timeline.now

    def turn(self, work: Callable[[LedgerTurn], None]) -> bool:
        """Do a turn, and what follows from it."""
        self.desk.outcome = Outcome([])
        said = super().turn(work)
        outcome = self.desk.outcome
        self._waiting += outcome.freed
        for woken, loop in (
            (outcome.cycle, self._cycle),
            (outcome.seals, self._seals),
            (outcome.deadlines, self._deadlines),
            (bool(outcome.freed), self._freed),
        ):
            if woken:
                loop.wake()
        return said

    # questions

    def answer_claim(self, claim: Claim, reply: Reply[ClaimAnswer]) -> None:
        """Answer a claim with those that come at the same time, after their commit."""
        if not self._claims:
            self.later(0.005, self._answer_claims)
        self._claims.append((claim, reply))

    def answer(self, work: Callable[[LedgerTurn], A], reply: Reply[A]) -> None:
        """Answer a question by a turn of its own, after the commit."""

        def answer() -> None:
            said: list[A] = []
            self.turn(lambda turn: said.append(work(turn)))
            reply(said[0])

        self.later(0.001, answer)

    def _answer_claims(self) -> None:
        asked, self._claims = self._claims, []
        said: list[ClaimAnswer] = []
        self.turn(lambda turn: said.extend(self.desk.claim(turn, [claim for claim, _ in asked])))
        for (_, reply), answer in zip(asked, said, strict=True):
            reply(answer)

    # the cycle: view, gate, wall, leases

    def cycle(self) -> bool:
        """Decide on one view; the gate comes next."""
        if self._cycling or not self.store.state.attempts.pending():
            return False
        decided: list[Decision | None] = []
        self.turn(lambda turn: decided.append(self.desk.decide(turn)))
        decision = decided[0]
        if decision is not None:
            check_decision(self.store.state, decision, self.store.clock.now())
            self._cycling = True
            follows = self._gate if decision.placements else self._settle
            self.soon(lambda: follows(decision))
        return True

    def _gate(self, decision: Decision) -> None:
        """Take the leases of each gang, all or none; with Redis away the wall decides (L3)."""
        passed = list(decision.placements)
        with suppress(UnavailableError):
            taken = self.leases.acquire_many({self._holder(p.pending): _devices(p) for p in passed})
            self._lift_ghosts([device for devices in taken.values() for device in devices])
            passed = [p for p in passed if not taken[self._holder(p.pending)]]
        self.soon(lambda: self._wall(decision, passed))

    def _wall(self, decision: Decision, passed: Sequence[Placement]) -> None:
        walled = Walled()

        def work(turn: LedgerTurn) -> None:
            nonlocal walled
            walled = self.desk.grant(turn, passed)

        if passed and self.weather.strikes("crash", 0.01):  # the transaction fails, and the process lives on
            walled = Walled(lost=tuple(passed))
        elif passed:
            self.turn(work)
        self.soon(lambda: self._settle(decision, walled))

    def _settle(self, decision: Decision, walled: Walled = NOTHING) -> None:
        """Raise what was granted, give the rest back, and say why the others wait."""
        self._cycling = False
        raised = [Lease(d, g.id, g.epoch) for g in walled.granted for part in g.parts for d in part.device_ids]
        back = [Lease(device, self._holder(each.pending)) for each in walled.lost for device in _devices(each)]
        with suppress(UnavailableError):
            self.leases.raise_many(raised)
            self.leases.release_many(back)
        if decision.refusals:
            self.turn(lambda turn: self.desk.refuse(turn, decision))
        if walled.granted and len(walled.granted) < len(decision.placements):
            self._cycle.wake()

    def _lift_ghosts(self, taken: Sequence[str]) -> None:
        found = [lease for lease in self.leases.read_many(taken).values() if lease and lease.epoch > PENDING]
        if not found:
            return
        ghosts: list[Lease] = []

        def work(turn: LedgerTurn) -> None:
            turn.state.stop_when_behind(found)
            ghosts.extend(turn.state.ghosts(found))

        self.turn(work)
        if ghosts:
            self.leases.release_many(ghosts)
            self._cycle.wake()

    def _holder(self, pending: Pending) -> str:
        return f"{run_name(pending.job, pending.attempt)}@{self.name}.{self.life}"

    # the other loops

    def give_back(self) -> bool:
        """Give back the leases of what was released."""
        batch, self._waiting = self._waiting, []
        if not batch:
            return False
        with suppress(UnavailableError):
            self.leases.release_many(batch)
        self._cycle.wake()
        return True

    def ask_seals(self) -> bool:
        """Ask for the proofs that are due."""
        due: list[Seal] = []
        if any(at <= self.store.clock.now() for at, _ in self.store.state.seals.values()):
            self.turn(lambda turn: due.extend(self.desk.seals_due(turn)))
        for seal in due:
            self._ask_seal(seal, self.in_this_life(self._take_seal))
        return bool(due)

    def take_seals(self) -> bool:
        """Take the proofs that have come, in one turn."""
        given, self._sealed = self._sealed, []
        if given:
            self.turn(lambda turn: self.desk.take_seals(turn, given))
        return bool(given)

    def watch(self) -> bool:
        """Let follow what follows when time passes; a node is silent only to one who has listened long enough."""
        broker = self.ground.broker

        def work(turn: LedgerTurn) -> None:
            if broker.up and self.desk.listen(turn):
                self._listens_since = self.timeline.now
            since = max(self._listens_since, broker.up_since)
            self.desk.deadlines(turn, self.timeline.now - since if broker.up else 0.0)

        return self.turn(work)

    def renew(self) -> bool:
        """Renew the leases of live lines from the ledger, and see whether it went back (L4, L5)."""
        live = self.store.state.live_leases()
        if live:
            self.soon(lambda: self._renew(live))
        return False

    def compare(self) -> bool:
        """Ask the others what they remember, and compare it with the ledger."""
        records = self._ask_records()
        return self.turn(lambda turn: compare(turn, records, self.leases, self.settings))

    def recover(self) -> bool:
        """After the ledger went back, ask who has not told what runs there, and take up what can be (R12)."""
        untold = self.store.state.untold() if self.store.state.recovery.stopped_at else []
        for node in untold:
            self._ask_holders(node, self.in_this_life(self._take_holders))
        if self.store.state.recovery.takes_up:
            self.turn(self.desk.take_up)
        for stranger in strangers(self.store.state):
            self._ask_seal(seal_of(stranger), self.in_this_life(partial(self._settle_stranger, stranger)))
        return bool(untold)

    def _settle_stranger(self, stranger: Forgotten, answer: SealAnswer | None) -> None:
        if answer is not None and proved_over(stranger, answer):
            self.turn(lambda turn: self.desk.settle(turn, stranger))

    def _take_holders(self, answer: HoldersAnswer | None) -> None:
        if answer is not None and answer.ready:
            self.turn(lambda turn: self.desk.told(turn, [answer]))

    def _renew(self, live: Sequence[Lease]) -> bool:
        try:
            raised = self.leases.raise_many(live)
        except UnavailableError:
            return False
        if raised.higher:
            self.turn(lambda turn: _note(turn, raised.higher))
        return bool(raised.missing or raised.higher)

    def _take_seal(self, answer: SealAnswer | None) -> None:
        if answer is not None and answer.sealed:
            self._sealed.append(answer)
            self._answers.wake()


def _note(turn: LedgerTurn, higher: Sequence[Lease]) -> None:
    turn.state.stop_when_behind(higher)


def _devices(placement: Placement) -> list[str]:
    return [device.device for device in placement.devices]
