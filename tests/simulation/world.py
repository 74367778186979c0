"""A world: the services with their real cores, their nodes, their people, and what goes wrong; told by one seed."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from pydantic import BaseModel

from libs.orchestrators.pretend import PretendCluster
from schemas.base import Envelope
from schemas.calls import Holders, HoldersAnswer, Seal, SealAnswer, Stop
from schemas.ids import GrantId, NodeId
from schemas.lifecycle import PartState
from services.admission.core import View
from services.admission.settings import Settings as AdmissionSettings
from services.dispatch.settings import Settings as DispatchSettings
from services.placement.settings import Settings as PlacementSettings
from tests.simulation.admission import Admission, AdmissionDesk, Desks
from tests.simulation.backups import Backups
from tests.simulation.dispatch import Dispatch, DispatchDesk, Runs
from tests.simulation.faults import Faults
from tests.simulation.ground import a_ground
from tests.simulation.guests import NATIVE
from tests.simulation.host import Host, listen
from tests.simulation.invariants import Judge
from tests.simulation.inventory import Fleet, Inventory
from tests.simulation.leases import MemoryLeases
from tests.simulation.ledger import Ledger
from tests.simulation.moving import CALL_SECONDS, Asks, Moves
from tests.simulation.network import Reply
from tests.simulation.nodes import Site, SiteSpec
from tests.simulation.people import CROWDED, ORDINARY, Crowd, Gateway, Wishes
from tests.simulation.placement import PlacementReplica
from tests.simulation.placement_desk import LedgerTurn, PlacementDesk
from tests.simulation.records import Records
from tests.simulation.store import BreachError, Store
from tests.simulation.timeline import SkewedClock
from tests.simulation.weather import KINDS, Weather

# waits are some ten times shorter than in production, and in the same order
PLACEMENT: Final = PlacementSettings(
    cycle_seconds=4.0,
    refusal_repeat_seconds=10.0,
    start_deadline_seconds=25,
    late_start_grace_seconds=3.0,
    suspect_after_seconds=10,
    node_lost_after_seconds=25,
    cluster_lost_after_seconds=40,
    breaker_nodes=4,
    stuck_after_seconds=10,
    deadline_seconds=4.0,
    seal_seconds=4.0,
    renew_seconds=4.0,
    lease_seconds=12,
    pending_lease_seconds=2,
    unanswered_seconds=20,
    reconcile_seconds=6.0,
    drift_after_seconds=30.0,
    recovery_seconds=3.0,
)
ADMISSION: Final = AdmissionSettings(
    backoff_limit_seconds=20,
    placement_deadline_seconds=40,
    preemption_seconds=60,
    sweep_seconds=20.0,
    clock_seconds=3.0,
)
DISPATCH: Final = DispatchSettings(work_seconds=3.0, look_seconds=6.0, vanished_seconds=20.0, sweep_seconds=20.0)
SITES: Final = (
    SiteSpec("east", "h100", (("e1", 4), ("e2", 4), ("e3", 2))),
    SiteSpec("west", "a100", (("w1", 4), ("w2", 4))),
)
QUEUES: Final = (
    ("main", False, True, {"h100": 10, "a100": 8}),
    ("side", False, False, {"h100": 4}),
    ("strict", True, True, {"h100": 6, "a100": 4}),
)
"""Name, whether strict, whether jobs preempt each other, quotas."""


@dataclass(frozen=True)
class Rules:
    """What a world plays by; a mutant replaces one of these. None: the dice say.

    ``restores``: of old backups, at most; ``moved``: how often somebody moves a node, of all that might, 1.0 at most.
    """

    admission: Callable[[], AdmissionDesk] = lambda: AdmissionDesk(ADMISSION)
    placement: Callable[[], PlacementDesk] = lambda: PlacementDesk(PLACEMENT)
    dispatch: Callable[[], DispatchDesk] = lambda: DispatchDesk(DISPATCH)
    ledger: Callable[[], Ledger] = Ledger
    cluster: type[PretendCluster] = PretendCluster
    crowd: Crowd | None = None
    moves: type[Moves] = Moves
    restores: int | None = None
    moved: float | None = None


class World:
    """Everything there is."""

    def __init__(self, seed: str, kinds: Collection[str] = KINDS, rules: Rules | None = None) -> None:
        chosen = rules or Rules()
        weather = Weather(seed, kinds)
        weather.calm = True
        self.ground = ground = a_ground(weather)
        self.dice = Random(f"{seed}/people")
        self._crowd = chosen.crowd or (CROWDED if self.dice.random() < 0.1 else ORDINARY)
        self.overridden: set[str] = set()
        self.era = 0
        self.forgotten: set[str] = set()
        self.heard: dict[NodeId, float] = {}  # when the ledger really heard of each node, by the world's time
        self.leases = MemoryLeases(
            lambda: ground.timeline.now,
            pending_seconds=PLACEMENT.pending_lease_seconds,
            lease_seconds=PLACEMENT.lease_seconds,
        )
        self._books: Store[Desks] = self._store("admission", Desks())
        self._ledgers: Store[Ledger] = self._store("placement", chosen.ledger(), copy=Ledger.copy)
        self._runs: Store[Runs] = self._store("dispatch", Runs())
        self.replicas = [self._replica(name, chosen.placement()) for name in ("one", "two")]
        self.sites = [Site(spec, ground, self.replicas, self._clock(), chosen.cluster) for spec in SITES]
        self._site_of = {node: site for site in self.sites for node in site.cluster.nodes}
        self.gateway = Gateway(self._store("gateway", Wishes()), ground)
        self.inventory = Inventory(self._store("inventory", Fleet()), ground, SITES)
        self.moves = chosen.moves(self.inventory, Asks(self._ask_ledger, self._ask_node))
        self.dispatch = Dispatch(self._runs, ground, chosen.dispatch(), self._ask_node)
        self.processes: list[Host[Any]] = [
            Admission(self._books, ground, chosen.admission()),
            *self.replicas,
            self.dispatch,
            self.gateway,
            self.inventory,
        ]
        self.stores: list[Store[Any]] = list({id(p.store): p.store for p in self.processes}.values())
        self._begin(weather, chosen)

    @property
    def ledger(self) -> Ledger:
        """What placement has committed."""
        return self._ledgers.state

    @property
    def admission_view(self) -> View:
        """What admission has committed."""
        return self._books.state.view

    @property
    def runs(self) -> Runs:
        """What dispatch has committed."""
        return self._runs.state

    async def step(self) -> None:
        """Let the next thing happen."""
        while not self.ground.timeline.step():
            pass
        for site in self.sites:
            if site.stirred:
                site.stirred = False
                for _ in range(3):  # a claim asks, or takes its answer, within so many turns of the loop
                    await asyncio.sleep(0)

    async def end(self) -> None:
        """Leave nothing behind that waits."""
        for site in self.sites:
            site.give_up()
            for task in list(site.tasks):
                task.cancel()
            await asyncio.gather(*site.tasks, return_exceptions=True)

    def _replica(self, name: str, desk: PlacementDesk) -> PlacementReplica:
        return PlacementReplica(
            self._ledgers,
            self.ground,
            desk,
            name=name,
            leases=self.leases,
            ask_seal=self._ask_seal,
            ask_holders=self._ask_holders,
            ask_records=self.records,
        )

    def _begin(self, weather: Weather, chosen: Rules) -> None:
        for name, strict, preempts, quota in QUEUES:
            self.gateway.declare(name, strict=strict, preempts=preempts, quota=quota)
        listen(
            self.replicas,
            "placement-workload",
            [each.desk.workload for each in self.replicas],
            self.replicas[0].desk.again,
        )
        listen(self.replicas, "placement-fleet", [each.desk.fleet for each in self.replicas])
        listen(self.replicas, "placement-runtime", [self._noting(each.desk) for each in self.replicas])
        one = self.replicas[0]
        one.sweep(lambda turn: turn.state.unanswered(turn.now, quiet_seconds=PLACEMENT.unanswered_seconds), 20.0)
        weather.calm = False
        self.judge = Judge(self)
        self.faults = Faults(self, Backups(self, self.judge), restores=chosen.restores, moved=chosen.moved)
        self._submit()

    def _noting(self, desk: PlacementDesk) -> Callable[[LedgerTurn, Sequence[Envelope]], None]:
        """Return a handler that keeps for the judge when nodes were heard."""

        def runtime(turn: LedgerTurn, batch: Sequence[Envelope]) -> None:
            desk.runtime(turn, batch)
            heard = [node for node, entry in turn.state.fleet.nodes.items() if entry.heard_at == turn.now]
            now = self.ground.timeline.now
            turn.after_commit(lambda: self.heard.update(dict.fromkeys(heard, now)))

        return runtime

    def _submit(self) -> bool:
        """Wish for jobs, one by one and in bursts, until the weather is calm; while NATS is away the door is shut."""
        if self.ground.weather.calm:
            return False
        self.ground.timeline.after(self.dice.choice(self._crowd.pauses), self._submit)
        if self.ground.broker.up:
            self.gateway.submit(self.dice, self._crowd)
        return self.ground.broker.up

    def records(self) -> Records:
        """Return what admission and dispatch answer when they are asked what they remember, if they do."""
        weather, lost = self.ground.weather, not self.ground.broker.up
        charges, runs = self.admission_view.charges.values(), self.runs.view.runs.values()
        silent = [lost or weather.strikes("call", 0.05) for _ in range(2)]
        return Records(
            None
            if silent[0]
            else {(each.job, each.attempt): each.held for each in charges if not each.over and each.granted},
            None if silent[1] else {run.grant: run.state.value for run in runs if not run.settled},
        )

    def _clock(self) -> SkewedClock:
        weather = self.ground.weather
        skew = weather.dice_of("skew").uniform(-120.0, 120.0) if "skew" in weather.kinds else 0.0
        weather.struck["skew"] += abs(skew) > 60.0
        return SkewedClock(self.ground.timeline, skew)

    def _store(self, name: str, state: Any, copy: Callable[[Any], Any] = lambda state: state) -> Store[Any]:
        return Store(name, state, self._clock(), copy)

    def _ask_node(self, node: NodeId, verb: str, question: BaseModel, done: Callable[[BaseModel | None], None]) -> None:
        era = self.era

        def arrive(reply: Reply[BaseModel]) -> None:
            if isinstance(question, Stop) and era == self.era:
                self._check_order(node, question.grant)
            self._site_of[node].ask(node, verb, question, reply)

        self.ground.network.ask(arrive, done, timeout_seconds=5.0)

    def _ask_ledger(self, verb: str, question: BaseModel, done: Callable[[BaseModel | None], None]) -> None:
        """Ask whichever replica of placement is there for a hold, or for its end.

        Nobody hears what was asked before a restore: all services were stopped meanwhile.
        """
        era = self.era

        def arrive(reply: Reply[BaseModel]) -> None:
            now = self.ground.timeline.now
            alive = [each for each in self.replicas if each.dead_until <= now]
            if alive and era == self.era:
                one = self.ground.weather.dice.choice(alive)
                one.answer(partial(getattr(one.desk, verb), asked=question), reply)

        self.ground.network.ask(arrive, done, timeout_seconds=CALL_SECONDS)

    def _ask_seal(self, seal: Seal, done: Callable[[SealAnswer | None], None]) -> None:
        era, strange = self.era, self._holds_as_stranger(seal)

        def arrive(reply: Reply[BaseModel]) -> None:
            if era == self.era and strange:
                self._check_stranger(seal)
            elif era == self.era:
                self._check_order(seal.node, seal.grant)
            self._site_of[seal.node].ask(seal.node, "seal", seal, reply)

        def take(answer: BaseModel | None) -> None:
            done(answer if isinstance(answer, SealAnswer) else None)

        self.ground.network.ask(arrive, take, timeout_seconds=5.0)

    def _ask_holders(self, node: NodeId, done: Callable[[HoldersAnswer | None], None]) -> None:
        def take(answer: BaseModel | None) -> None:
            if isinstance(answer, HoldersAnswer):
                runs = tuple(run for run in answer.runs if run.order.grant != NATIVE)
                done(answer.model_copy(update={"runs": runs}))
            else:
                done(None)

        self._ask_node(node, "holders", Holders(node=node), take)

    def _holds_as_stranger(self, seal: Seal) -> bool:
        """Whether the ledger has no place for what is asked for, and a person has lifted the stop."""
        row = self.ledger.recovery.forgotten.get((seal.grant, seal.node, seal.epoch))
        return row is not None and row.stranger and not self.ledger.stops

    def _check_stranger(self, seal: Seal) -> None:
        """What was a stranger when it was asked for has got no part meanwhile that may run (G7)."""
        grant = self.ledger.grants.get(seal.grant)
        if grant is not None and grant.epoch == seal.epoch and grant.part(seal.node) is not None:
            self._check_order(seal.node, seal.grant)

    def _check_order(self, node: NodeId, grant: GrantId) -> None:
        """Nothing is stopped but on a grant that the ledger holds as Revoking or Released (G7)."""
        part = self.ledger.grants[grant].part(node)
        if part is None or part.state not in {PartState.REVOKING, PartState.RELEASED}:
            raise BreachError(f"I7: {grant} is to be stopped on {node} and is {part}")
