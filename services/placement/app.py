"""Placement put together: handlers, and the loops that decide, seal, watch the clock and renew the leases."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

from pydantic import ValidationError

from libs.config import Infrastructure
from libs.errors import RefusedError, TransientError, UnavailableError
from libs.leases import PENDING, Lease, Leases
from libs.service import Service, Turn
from schemas.calls import Seal, SealAnswer
from schemas.ids import GrantId, NodeId, run_name
from schemas.reasons import Code
from schemas.workload import GrantRefused
from services.placement.core.decide import Decision, Pending, Placement, Refusal, decide, withhold
from services.placement.core.grant import sealed
from services.placement.handlers.deadlines import Deadlines
from services.placement.handlers.drift import Reconciler
from services.placement.handlers.escalations import Escalations
from services.placement.handlers.facts import Handlers
from services.placement.handlers.holds import Holds
from services.placement.handlers.numbers import Numbers
from services.placement.handlers.recovery import Recovery
from services.placement.handlers.renewal import Renewal
from services.placement.handlers.strangers import Strangers
from services.placement.settings import Settings
from services.placement.store import attempts, comebacks, fleet, overdue, renewal, wall
from services.placement.store.attempts import Refused
from services.placement.store.changes import Action, Changes, chained

Nothing = Callable[[], None]


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return the service, ready to start."""
    service = Service("placement", infrastructure, sweep_seconds=settings.sweep_seconds, pool_size=settings.connections)
    leases = Leases(
        infrastructure.redis_url.get_secret_value(),
        pending_milliseconds=settings.pending_lease_seconds * 1_000,
        lease_milliseconds=settings.lease_seconds * 1_000,
    )
    service.on_stop(leases.close)
    cycle = Cycle(service, leases, settings)
    wake_cycle = service.loop("cycle", cycle.run, every=settings.cycle_seconds)
    cycle.again = wake_cycle
    freed = Freed(service, leases, wake_cycle)
    freed.wake = service.loop("freed leases", freed.run, every=settings.renew_seconds)
    changes = Changes(freed.add)
    seals = Seals(service, changes, settings)
    seals.wake = service.loop("seal answers", seals.take, every=settings.seal_seconds)
    wake_seals = service.loop("seals", seals.ask, every=settings.seal_seconds)
    service.on_stop(seals.stop)
    deadlines = Deadlines(service, changes, settings, wake_seals)
    wake_deadlines = service.loop("deadlines", deadlines.run, every=settings.deadline_seconds)
    renewer = Renewal(service, leases)
    service.loop("renewal", renewer.run, every=settings.renew_seconds)
    service.loop("recovery", Recovery(service, changes, settings).run, every=settings.recovery_seconds)
    service.loop("strangers", Strangers(service, settings, wake_cycle).run, every=settings.recovery_seconds)
    service.loop("reconcile", Reconciler(service, leases, settings).run, every=settings.reconcile_seconds)
    service.measure(Numbers(service.metrics, cycle.counts, renewer.counts).measure)
    handlers = Handlers(changes, wake_cycle=wake_cycle, wake_seals=wake_seals, wake_deadlines=wake_deadlines)
    service.consume("placement-workload", handlers.workload, handlers.again)
    service.consume("placement-fleet", handlers.fleet)
    service.consume("placement-runtime", handlers.runtime)
    service.answer("call.grant.claim", handlers.claim)
    service.answer("call.grant.hello", handlers.hello)
    transfers = Holds(service, wake_cycle=wake_cycle, wake_deadlines=wake_deadlines)
    service.answer("call.grant.hold", transfers.take)
    service.answer("call.grant.drop", transfers.drop)
    escalations = Escalations(service, changes)
    service.answer("call.grant.escalations", escalations.show)
    service.answer("call.grant.override", escalations.settle)

    async def unanswered(turn: Turn) -> Sequence[UUID]:
        return await overdue.unanswered(turn.connection, quiet_seconds=settings.unanswered_seconds)

    service.sweep(unanswered)
    return service


class Cycle:
    """Decide on one view, pass the gate, commit at the wall, raise the leases. Every replica of the service does it."""

    def __init__(self, service: Service, leases: Leases, settings: Settings) -> None:
        self.counts: Counter[str] = Counter()
        self.again: Nothing = _nothing
        self._service = service
        self._leases = leases
        self._settings = settings
        self._replica = uuid4().hex[:12]
        self._stopped = False
        self._looked_at = -math.inf

    async def run(self) -> None:
        """Do one cycle: a whole look, or one at the most urgent where many wait. Raises TransientError."""
        now, settings = self._service.clock.monotonic(), self._settings
        is_whole = now - self._looked_at >= settings.whole_look_seconds
        decision = await self._decide(settings.pending_attempts if is_whole else settings.urgent_attempts)
        if decision is None:
            return
        size = settings.cycle_gangs
        for start in range(0, len(decision.placements), size):
            await self._grant(decision.placements[start : start + size])
        if is_whole:
            self._looked_at = now
            await self._refuse(decision.refusals)

    async def _grant(self, batch: Sequence[Placement]) -> None:
        """Take a batch through gate and wall. No row is locked while Redis is asked."""
        passed = await self._gate(batch)
        try:
            async with self._service.turn() as turn:
                walled = await wall.grant(turn, passed, start_seconds=self._settings.start_deadline_seconds)
        except TransientError:
            await self._settle(wall.Walled(lost=tuple(passed)))  # a transaction that fails gives its leases back
            raise
        await self._settle(walled)
        lost = {"gate_lost": len(batch) - len(passed), "wall_lost": len(walled.lost)}
        self.counts.update(lost, granted=len(walled.granted))
        self._service.log.info("granted", n=len(walled.granted), **lost)
        if walled.granted and any(lost.values()):
            self.again()  # without progress the next cycle comes in its time: a rival is at it

    async def _decide(self, limit: int) -> Decision | None:
        async with self._service.turn() as turn:
            pending = await attempts.pending(turn.connection, limit)
            if not pending:
                return None
            stopped = await renewal.stopped(turn.connection)
            if stopped and not self._stopped:
                self._service.log.error("no new grants: a lease stands above the ledger", waiting=len(pending))
            self._stopped = stopped
            if stopped:
                return withhold(pending)
            view = await fleet.load_view(turn.connection)
            held = await comebacks.standing(turn.connection)
        return decide(view, pending, held)

    async def _gate(self, placements: Sequence[Placement]) -> list[Placement]:
        """Return the gangs whose leases are all ours; with Redis away all of them, for the wall decides (L3)."""
        gangs = {self._holder(placement.pending): _devices(placement) for placement in placements}
        try:
            taken = await self._leases.acquire_many(gangs)
            await self._lift_ghosts([device for devices in taken.values() for device in devices])
        except UnavailableError as error:
            self.counts["without_gate"] += 1
            self._service.log.warning("no gate", why=str(error))
            return list(placements)
        return [placement for placement in placements if not taken[self._holder(placement.pending)]]

    async def _lift_ghosts(self, taken: Sequence[str]) -> None:
        """Give back leases whose grant is over: a slow renewer has written them again after the release."""
        if not taken:
            return
        found = [lease for lease in (await self._leases.read_many(taken)).values() if lease and lease.epoch > PENDING]
        async with self._service.turn() as turn:
            await renewal.stop_when_behind(turn.connection, found)
            ghosts = await renewal.ghosts(turn.connection, found)
        if ghosts:
            self.counts["ghosts"] += await self._leases.release_many(ghosts)
            self.again()

    async def _refuse(self, refusals: Sequence[Refusal]) -> None:
        """Tell those that wait why. A word costs as much as a grant, so they are bounded for all together."""
        if not refusals:
            return
        repeat = max(self._settings.refusal_repeat_seconds, len(refusals) / self._settings.refusals_per_second)
        async with self._service.turn() as turn:
            for refused in await attempts.refuse(turn.connection, refusals, repeat_seconds=repeat):
                _emit_refused(turn, refused)

    async def _settle(self, walled: wall.Walled) -> None:
        """Raise what was granted and give the rest back; what fails here the renewer mends."""
        raised = [
            Lease(device, grant.id, grant.epoch)
            for grant in walled.granted
            for part in grant.parts
            for device in part.device_ids
        ]
        back = [
            Lease(device, self._holder(placement.pending))
            for placement in walled.lost
            for device in _devices(placement)
        ]
        try:
            await self._leases.raise_many(raised)
            await self._leases.release_many(back)
        except UnavailableError as error:
            self._service.log.warning("leases not settled", why=str(error), raised=len(raised), back=len(back))

    def _holder(self, pending: Pending) -> str:
        """Who holds a pending lease: two replicas that place the same attempt are two."""
        return f"{run_name(pending.job, pending.attempt)}@{self._replica}"


class Freed:
    """Gives the leases of released devices back; what fails here goes by its ttl."""

    def __init__(self, service: Service, leases: Leases, wake_cycle: Nothing) -> None:
        self.wake: Nothing = _nothing
        self._service = service
        self._leases = leases
        self._wake_cycle = wake_cycle
        self._waiting: list[Lease] = []

    def add(self, freed: Sequence[Lease]) -> None:
        """Take leases whose release is committed."""
        self._waiting += freed
        self.wake()

    async def run(self) -> None:
        """Give back what waits, and let the next cycle begin."""
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        try:
            await self._leases.release_many(batch)
        except UnavailableError as error:
            self._service.log.warning("leases not given back", why=str(error), n=len(batch))
        self._wake_cycle()


class Seals:
    """Asks the agents for the proof of release until it is there (R5)."""

    def __init__(self, service: Service, changes: Changes, settings: Settings) -> None:
        self.wake: Nothing = _nothing
        self._service = service
        self._changes = changes
        self._settings = settings
        self._places = asyncio.Semaphore(settings.seals_at_once)
        self._asking: set[asyncio.Task[None]] = set()
        self._sealed: list[SealAnswer] = []
        self._refused: list[tuple[GrantId, NodeId, str]] = []

    async def ask(self) -> None:
        """Ask for what is due. A slow node holds up no other: each answer is taken when it comes."""
        async with self._service.turn() as turn:
            due = await overdue.seals_due(turn.connection, self._settings.seals_at_once)
        for seal in due:
            task = asyncio.ensure_future(self._ask(seal))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def take(self) -> None:
        """Take the answers that have come, in one turn. Raises TransientError; they are kept then."""
        given, self._sealed = self._sealed, []
        refused, self._refused = self._refused, []
        if not given and not refused:
            return
        try:
            await self._take(given, refused)
        except BaseException:
            self._sealed, self._refused = given + self._sealed, refused + self._refused
            raise

    async def stop(self) -> None:
        """Ask no more."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _take(self, given: Sequence[SealAnswer], refused: Sequence[tuple[GrantId, NodeId, str]]) -> None:
        answers: dict[GrantId, list[SealAnswer]] = {}
        for answer in given:
            answers.setdefault(answer.grant, []).append(answer)
        async with self._service.turn() as turn:
            await self._changes.take(
                turn, {grant: chained([_sealing(one) for one in each]) for grant, each in answers.items()}
            )
            if given:
                await overdue.note_clear(turn.connection, given)
            if refused:
                await overdue.note_refused_seals(turn.connection, refused)

    async def _ask(self, seal: Seal) -> None:
        code = ""
        try:
            async with self._places:
                body = await self._service.call(
                    f"call.node.{seal.node}.seal", seal, timeout=self._settings.seal_call_seconds
                )
            answer = SealAnswer.model_validate_json(body)
            code = "" if answer.sealed else (answer.reason.code if answer.reason else Code.UNKNOWN)
            self._sealed += [answer] if answer.sealed else []
        except UnavailableError:
            code = Code.AGENT_UNREACHABLE
        except (RefusedError, ValidationError) as error:
            code = Code.UNKNOWN
            self._service.log.warning("no seal", error=error, node=seal.node)
        if code:
            self._refused.append((seal.grant, seal.node, code))
        self.wake()


def _sealing(answer: SealAnswer) -> Action:
    return lambda grant, now: sealed(grant, answer, now=now)


def _emit_refused(turn: Turn, refused: Refused) -> None:
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


def _devices(placement: Placement) -> list[str]:
    return [device.device for device in placement.devices]


def _nothing() -> None:
    """Stand for a wake-up that is not wired yet."""
