"""The nodes: pretended clusters with their agents, who report, say hello, claim, notice, and lie when told to."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from libs.errors import UnavailableError
from libs.orchestrators.pretend import PretendCluster
from libs.orchestrators.pretend_node import PretendNode, PretendRun
from libs.orchestrators.script import Script
from schemas.base import Envelope, Event, fact_type
from schemas.calls import Claim, ClaimAnswer, FoundState, Hello, HelloAnswer, LaunchOrder, Stop, Verdict
from schemas.ids import ClusterId, NodeId, RunName, cluster_id, device_id, fact_id, node_id
from schemas.runtime import ObservationNoticed, ObservationReported, ObservedDevice
from tests.simulation.ground import Ground
from tests.simulation.guests import NATIVE, give_others, lead_astray, unmanaged
from tests.simulation.placement import PlacementReplica
from tests.simulation.timeline import SkewedClock

CLAIM_SECONDS: Final = 5.0
BEAT_SECONDS: Final = 4.0
START_KEY, OPEN_KEY, DEAF_KEY, SECONDS_KEY, CODE_KEY = "START", "OPEN", "DEAF", "SECONDS", "CODE"
APART_KEY: Final = "APART"
"""Seconds that each rank of a gang goes on for longer than the one before it."""


@dataclass(frozen=True, slots=True)
class SiteSpec:
    """What a cluster is made of: its name, its class, and devices by node."""

    name: str
    gpu_class: str
    nodes: tuple[tuple[str, int], ...]

    @property
    def id(self) -> ClusterId:
        """The cluster's id."""
        return cluster_id(self.name)

    def node(self, name: str) -> NodeId:
        """The id of a node."""
        return node_id(self.id, name)

    def devices(self, name: str, count: int) -> tuple[ObservedDevice, ...]:
        """The devices of a node."""
        node = self.node(name)
        return tuple(
            ObservedDevice(device=device_id(node, f"GPU-{n}"), index=n, uuid=f"GPU-{n}", model=self.gpu_class)
            for n in range(count)
        )


class Site:
    """One cluster and its agents. ``running`` is the judge's view: what really runs, whatever anybody believes."""

    def __init__(
        self,
        spec: SiteSpec,
        ground: Ground,
        ledgers: list[PlacementReplica],
        clock: SkewedClock,
        cluster: type[PretendCluster] = PretendCluster,
    ) -> None:
        self.spec, self.clock = spec, clock
        self.gone: set[NodeId] = set()
        self._cut_until: dict[NodeId, float] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.stirred = False
        self.moves = 0
        self._ground, self._ledgers = ground, ledgers
        self._sequence = 0
        self._kept_back: list[Envelope] | None = None
        self._greeted: set[tuple[NodeId, int]] = set()
        self._due_at = float("inf")
        self._waits: dict[int, asyncio.Future[ClaimAnswer]] = {}
        nodes = [
            PretendNode(spec.node(name), name, f"boot-{name}", spec.devices(name, count)) for name, count in spec.nodes
        ]
        self.cluster = cluster(spec.id, nodes, clock, claim=self._claim, notice=self.say, script=script_of)
        ground.timeline.after(ground.weather.dice.random(), self._beat)

    def ask(self, node: NodeId, verb: str, question: BaseModel, reply: Callable[[BaseModel], None]) -> None:
        """Let a node answer a question that has come to it, if it does."""
        asked = self.cluster.nodes[node]
        known = set(asked.runs)
        said: BaseModel | None = None
        with suppress(UnavailableError):
            said = self.cluster.answer(node, verb, question)
        self._allocate(asked, known)
        self._count(asked, verb, known)
        if said is not None:
            reply(said)
        self.plan()

    def plan(self) -> None:
        """See to it that the cluster moves when it has something to do."""
        due = self.cluster.next_due()
        if due is None or due >= self._due_at:
            return
        self._due_at = due

        def move() -> bool:
            if self._due_at != due:
                return False
            self._due_at = float("inf")
            task = asyncio.ensure_future(self.cluster.tick())
            self.tasks.add(task)
            task.add_done_callback(self._ticked)
            self.stirred = True
            self.moves += 1
            return True

        self._ground.timeline.at(due, move)

    def running(self) -> list[tuple[PretendNode, PretendRun]]:
        """Return the runs whose processes live now."""
        return [
            (node, run)
            for node in self.cluster.nodes.values()
            for run in node.runs.values()
            if run.state is FoundState.RUNNING
        ]

    def reboot(self, node: NodeId) -> None:
        """Let a node lose its power; its agent comes back with it."""
        self.cluster.reboot(node)
        self.moves += 1
        self.restart_agent(node)

    def lose(self, node: NodeId, *, powered: bool) -> None:
        """Let nobody ever hear of a node again; ``powered``: what runs there goes on."""
        self.gone.add(node)
        self.cluster.nodes[node].silent = True
        if not powered:
            self.cluster.reboot(node)
            self.moves += 1

    def cut(self, node: NodeId, seconds: float) -> None:
        """Let a node not be heard for so long at least."""
        until = self._ground.timeline.now + seconds
        self._cut_until[node] = max(until, self._cut_until.get(node, 0.0))
        self.cluster.nodes[node].silent = True

    def heal(self, node: NodeId) -> None:
        """Let a node be heard, unless it is gone for good, or a cut lasts longer."""
        cut = self._cut_until.get(node, 0.0) > self._ground.timeline.now and not self._ground.weather.calm
        self.cluster.nodes[node].silent = cut or node in self.gone

    def restart_agent(self, node: NodeId) -> None:
        """Let a node's agent come up anew: it says hello."""
        self.cluster.nodes[node].agents += 1

    def say(self, fact: ObservationNoticed) -> None:
        """Let an agent say what it noticed, or what it makes up."""
        envelope = self._envelope(fact, fact.node)
        if self._kept_back is None:
            self._ground.broker.say(envelope)
        else:
            self._kept_back.append(envelope)

    def keep_back(self) -> None:
        """Keep what agents notice from now on."""
        self._kept_back = self._kept_back or []

    def let_go(self) -> None:
        """Say all that was kept back, twice and in no order."""
        kept, self._kept_back = self._kept_back or [], None
        late = kept + kept
        self._ground.weather.dice_of("watch").shuffle(late)
        self._ground.weather.struck["notices late and twice"] += bool(late)
        for envelope in late:
            self._ground.broker.say(envelope)

    def say_later(self, seconds: float, fact: ObservationNoticed) -> None:
        """Let an agent say something in a while."""

        def act() -> bool:
            self.say(fact)
            return True

        self._ground.timeline.after(seconds, act)

    def give_up(self) -> None:
        """Let all claims that wait go without an answer; for the end of a world."""
        for waiting in self._waits.values():
            if not waiting.done():
                waiting.set_exception(UnavailableError("the world ends"))

    def _allocate(self, node: PretendNode, known: Collection[tuple[RunName, int]]) -> None:
        for key in [key for key in node.runs if key not in known]:
            if self._ground.weather.strikes("elsewhere", 0.05):
                give_others(node, node.runs[key], self._ground.weather.dice_of("elsewhere"))
            if self._ground.weather.strikes("astray", 0.03):
                lead_astray(node, node.runs[key])

    def _count(self, node: PretendNode, verb: str, known: Collection[tuple[RunName, int]]) -> None:
        struck = self._ground.weather.struck
        struck["deaf to a launch"] += node.deaf and not node.silent and len(node.runs) > len(known)
        struck["deaf to a mark"] += verb == "mark" and node.deaf and not node.silent
        struck["forgetful of runs"] += node.forgetful and verb == "find" and bool(known)

    def _ticked(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        self.plan()

    async def _claim(self, claim: Claim) -> ClaimAnswer:
        answer: asyncio.Future[ClaimAnswer] = asyncio.get_running_loop().create_future()
        number = len(self._waits)
        self._waits[number] = answer
        node = self.cluster.nodes[claim.node]

        def done(said: ClaimAnswer | None) -> None:
            self.stirred = True
            self.moves += 1
            if said is None or node.silent:
                answer.set_exception(UnavailableError("no word of the ledger"))
            else:
                answer.set_result(said)

        def arrive(reply: Callable[[ClaimAnswer], None]) -> None:
            ledger = self._some_ledger()
            if ledger is not None and not node.silent:
                ledger.answer_claim(claim, reply)

        self._ground.network.ask(arrive, done, timeout_seconds=CLAIM_SECONDS, slow=0.1)
        try:
            return await answer
        finally:
            self.plan()

    def _some_ledger(self) -> PlacementReplica | None:
        alive = [ledger for ledger in self._ledgers if ledger.dead_until <= self._ground.timeline.now]
        return self._ground.weather.dice.choice(alive) if alive else None

    def _beat(self) -> bool:
        """Report for every node that can, and say hello where that was not heard yet."""
        self._ground.timeline.after(BEAT_SECONDS * (0.9 + 0.2 * self._ground.weather.dice.random()), self._beat)
        nodes = [node for node in self.cluster.nodes.values() if not node.silent]
        self._ground.broker.say_together([self._envelope(self._report(node), node.id) for node in nodes])
        strangers = [node for node in nodes if (node.id, node.agents) not in self._greeted]
        for node in strangers:
            self._greet(node)
        return bool(strangers)

    def _greet(self, node: PretendNode, boots: int = 0) -> None:
        number = node.agents
        hello = Hello(
            node=node.id,
            cluster=self.spec.id,
            boot=node.boot,
            incarnation=f"agent-{number}",
            holders=node.holders(),
            boots=boots,
        )

        def done(said: HelloAnswer | None) -> None:
            if said is None or number != node.agents or node.silent:
                return
            if said.boots is not None:
                self._greet(node, said.boots)
                return
            self._greeted.add((node.id, number))
            stops = {verdict.grant for verdict in said.verdicts if verdict.verdict is Verdict.STOP}
            for run in [run for run in node.runs.values() if run.order.grant in stops]:
                stop = Stop(run=run.order.run, grant=run.order.grant, epoch=run.order.epoch, grace_seconds=1)
                self.ask(node.id, "stop", stop, lambda _: None)

        def arrive(reply: Callable[[HelloAnswer], None]) -> None:
            ledger = self._some_ledger()
            if ledger is not None and not node.silent:
                ledger.answer(lambda turn: ledger.desk.hello(turn, [hello])[0], reply)

        self._ground.network.ask(arrive, done, timeout_seconds=CLAIM_SECONDS, slow=0.1)

    def _report(self, node: PretendNode) -> ObservationReported:
        self._sequence += 1
        return ObservationReported(
            node=node.id,
            cluster=self.spec.id,
            cluster_name=self.spec.name,
            node_name=node.name,
            machine=node.name,
            boot=node.boot,
            incarnation=f"agent-{node.agents}",
            sequence=self._sequence,
            hello=False,
            devices=node.devices,
            holders=tuple(holder for holder in node.holders() if holder.grant != NATIVE),
            unmanaged=unmanaged(node),
            blind=node.blindness,
            observed_at=self.clock.now(),
        )

    def _envelope(self, fact: Event, node: NodeId) -> Envelope:
        self._sequence += 1
        kind = fact_type(type(fact))
        identity = fact_id(kind, node, self._sequence)
        return Envelope(identity, kind, "agent", self.clock.now(), self.spec.id, node, self._sequence, fact)


def script_of(order: LaunchOrder) -> Script:
    """Return what a run does, from its environment."""
    env = order.work.env
    code, rank = int(env.get(CODE_KEY, "0")), min(replica.rank for replica in order.replicas)
    return Script(
        seconds=float(env.get(SECONDS_KEY, "0")) + rank * float(env.get(APART_KEY, "0")),
        exit_codes=(code,) * len(order.replicas),
        start_seconds=float(env.get(START_KEY, "0")),
        open_seconds=float(env.get(OPEN_KEY, "0")),
        deaf=DEAF_KEY in env,
    )
