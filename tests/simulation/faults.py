"""What goes wrong besides messages, and what people do: each kind by its own dice, every so many seconds."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from libs.orchestrators.pretend_node import PretendNode
from schemas.calls import FoundState
from schemas.fleet import MarkEffect
from schemas.ids import GrantId, JobId, NodeId
from schemas.lifecycle import PartState
from schemas.reasons import Code, Layer, reason
from services.placement.core.grant import Word, override
from tests.simulation.backups import AWAY_SECONDS, Backups
from tests.simulation.guests import end_natives, start_native
from tests.simulation.host import PAUSES
from tests.simulation.ledger import Ledger
from tests.simulation.movers import Movers
from tests.simulation.nodes import Site
from tests.simulation.placement_desk import LedgerTurn
from tests.simulation.stage import Stage
from tests.simulation.tricks import lie, restart

STREAMS: Final = ("workload", "workload", "runtime", "fleet")
WORD: Final = Word("ada", "the node was scrapped")


class Faults:
    """Lets things happen to a stage until the weather is calm."""

    def __init__(
        self, stage: Stage, backups: Backups, *, restores: int | None = None, moved: float | None = None
    ) -> None:
        self._stage, self._backups, self._movers = stage, backups, Movers(stage, moved)
        self._weather = stage.ground.weather
        self._violence = self._weather.dice.choice((0.5, 1.0, 2.0))
        self._natives = 0
        dice = self._weather.dice_of("restore")
        often = dice.choice((0, 1, 3))
        self._restores = often if restores is None else restores
        self._haste = dice.choice((0.3, 0.05, 0.01))  # how soon a backup is restored that misses something
        for kind, seconds, happen in (
            ("crash", 20.0, self._crash),
            ("pause", 15.0, self._pause),
            ("stream", 60.0, self._lose_stream),
            ("redis", 8.0, self._hurt_redis),
            ("broker", 400.0, self._lose_broker),
            ("restore", 0.3, self._restore),
            ("cut", 20.0, self._cut),
            ("gone", 700.0, self._lose_node),
            ("reboot", 15.0, self._reboot),
            ("agent", 25.0, self._restart_agent),
            ("deaf", 20.0, lambda: self._for_a_while("deaf", "deaf")),
            ("mute", 20.0, lambda: self._for_a_while("mute", "mute")),
            ("watch", 30.0, self._keep_back),
            ("forgetful", 20.0, lambda: self._forget(self._node("forgetful"))),
            ("refusal", 40.0, self._refuse),
            ("blind", 40.0, self._blind),
            ("liar", 10.0, lambda: lie(self._site("liar"), self._weather.dice_of("liar"))),
            ("restart", 15.0, lambda: restart(self._site("restart"), self._weather.dice_of("restart"))),
            ("native", 30.0, self._start_native),
            ("neighbour", 20.0, self._let_slip_in),
            ("stubborn", 25.0, lambda: self._until(self._seconds("stubborn"), self._movers.refuse_marks())),
            ("move", 12.0, self._movers.act),
            ("cancel", 20.0, lambda: stage.gateway.withdraw(self._weather.dice_of("cancel"))),
            ("drain", 25.0, self._drain),
            ("late", 3.0, self._drain_under_results),
            ("override", 4.0, self._override),
        ):
            self._every(kind, seconds, happen)

    def end(self) -> None:
        """Let everything be well again from now on."""
        self._weather.calm = True
        self._stage.leases.away = False
        self._stage.ground.broker.come()
        self._stage.gateway.withdraw_endless()
        for site in self._stage.sites:
            site.let_go()
            for node in site.cluster.nodes.values():
                site.heal(node.id)
                node.deaf = node.mute = node.forgetful = False
                node.ready = True
                node.refusal = node.blindness = node.mark_refusal = None
                end_natives(node)
                self._stage.inventory.lift(node.id)
            self._mend_overrides(site)
        self._movers.bring_home()
        self._settle_what_is_gone()
        self._look_whether_all_told()

    def _mend_overrides(self, site: Site) -> None:
        """Restart the agents of nodes with a run that a wrong override has left: it is told to stop it (G7)."""
        for node, run in site.running():
            if run.order.grant in self._stage.overridden and node.id not in site.gone:
                site.restart_agent(node.id)

    @property
    def _ledger(self) -> Ledger:
        return self._stage.ledger

    def _every(self, kind: str, seconds: float, happen: Callable[[], object]) -> None:
        if kind not in self._weather.kinds:
            return
        dice = self._weather.dice_of(kind)

        def strike() -> bool:
            if self._weather.calm:
                return False
            self._stage.ground.timeline.after(dice.expovariate(self._violence / seconds), strike)
            if happen() is False:
                return False
            self._weather.struck[kind] += 1
            return True

        self._stage.ground.timeline.after(dice.expovariate(self._violence / seconds), strike)

    def _until(self, seconds: float, mend: Callable[[], None]) -> None:
        def act() -> bool:
            mend()
            return True

        self._stage.ground.timeline.after(seconds, act)

    # services

    def _crash(self) -> None:
        self._weather.dice_of("crash").choice(self._stage.processes).die()

    def _pause(self) -> None:
        dice = self._weather.dice_of("pause")
        dice.choice(self._stage.processes).pause(dice.choice(PAUSES))

    def _lose_stream(self) -> None:
        stream = self._weather.dice_of("stream").choice(STREAMS)
        self._stage.ground.broker.lose(stream)
        for process in {id(each.store): each for each in self._stage.processes}.values():
            process.lose_stream(stream)

    def _hurt_redis(self) -> None:
        leases, dice = self._stage.leases, self._weather.dice_of("redis")
        match dice.choice(("wipe", "remember", "remember", "roll back", "away")):
            case "wipe":
                self._weather.struck["leases wiped"] += bool(leases.held())
                leases.wipe()
            case "remember":
                leases.remember()
            case "roll back":
                self._weather.struck["leases rolled back"] += 1
                leases.roll_back()
            case _:
                self._weather.struck["leases away"] += 1
                leases.away = True
                self._until(dice.choice((0.5, 5.0, 20.0)), self._mend_redis)

    def _mend_redis(self) -> None:
        self._stage.leases.away = False

    def _lose_broker(self) -> bool:
        broker = self._stage.ground.broker
        if not broker.up:
            return False
        broker.go(self._weather.dice_of("broker").choice((30.0, 45.0, 90.0)))
        return True

    def _restore(self) -> bool:
        """Make a backup, or bring back one that misses a run; then somebody looks what nodes say, and lifts it."""
        dice, backups = self._weather.dice_of("restore"), self._backups
        if self._stage.era >= self._restores:
            return False
        if not backups.are_there:
            if dice.random() < (0.3 if _any_issued(self._ledger) else 0.02):
                backups.make()
            return False
        if not backups.misses(self._ledger) or dice.random() > self._haste:
            return False
        backups.restore(again=dice.random() < 0.5)
        if "cut" in self._weather.kinds and dice.random() < 0.3:
            self._cut()  # a node that cannot tell what it runs
        patience = dice.choice((20.0, 60.0, 1_000.0))
        self._until(patience, lambda: self._lift(AWAY_SECONDS))
        self._look_whether_all_told()
        return True

    def _look_whether_all_told(self) -> None:
        """Let a person lift the stop as soon as every node that may ever be heard has told what it runs."""
        gone = {node for site in self._stage.sites for node in site.gone}

        def look() -> bool:
            if self._ledger.stops and not set(self._ledger.untold()) - gone:
                self._lift(0.0)
            elif self._ledger.stops:
                self._stage.ground.timeline.after(5.0, look)
            return True

        self._stage.ground.timeline.after(5.0, look)

    def _lift(self, seconds: float) -> None:
        replica = self._stage.replicas[0]
        replica.later(seconds, lambda: replica.turn(lambda turn: turn.state.stops.clear()))

    # nodes

    def _site(self, kind: str) -> Site:
        return self._weather.dice_of(kind).choice(self._stage.sites)

    def _node(self, kind: str) -> PretendNode:
        return self._weather.dice_of(kind).choice(list(self._site(kind).cluster.nodes.values()))

    def _cut(self) -> None:
        site = self._site("cut")
        nodes = list(site.cluster.nodes.values())
        dice = self._weather.dice_of("cut")
        cut = nodes if dice.random() < 0.3 else [dice.choice(nodes)]
        self._weather.struck["cluster cut off"] += len(cut) > 1
        seconds = dice.choice((5.0, 20.0, 60.0, 120.0))
        for node in cut:
            site.cut(node.id, seconds)
        self._until(seconds, lambda: self._heal(cut))

    def _lose_node(self) -> bool:
        """Lose the last and smallest node for good: whatever there may be wished for finds room without it."""
        site = self._stage.sites[0]
        node = list(site.cluster.nodes)[-1]
        if node in site.gone:
            return False
        site.lose(node, powered=self._weather.dice_of("gone").random() < 0.5)
        return True

    def _reboot(self) -> None:
        site = self._site("reboot")
        dice = self._weather.dice_of("reboot")
        node = dice.choice(list(site.cluster.nodes.values()))
        site.reboot(node.id)
        node.silent = True
        self._until(dice.choice((0.0, 0.5, 5.0, 20.0)), lambda: self._heal([node]))
        if dice.random() < 0.3:  # it comes up, says hello, and loses its power again
            self._until(dice.choice((6.0, 12.0)), lambda: site.reboot(node.id))

    def _heal(self, nodes: Sequence[PretendNode]) -> None:
        for site in self._stage.sites:
            for node in nodes:
                if node.id in site.cluster.nodes:
                    site.heal(node.id)

    def _restart_agent(self) -> None:
        """Restart an agent: of a node where a start has leave and has not opened its devices, where there is one."""
        dice = self._weather.dice_of("agent")
        opening = [(site, node.id, job) for site in self._stage.sites for node, job in self._opening(site)]
        if opening and dice.random() < 0.7:
            site, node, job = dice.choice(opening)
            if dice.random() < 0.7:
                self._stage.gateway.withdraw_job(job)
        else:
            site = self._site("agent")
            node = dice.choice(sorted(site.cluster.nodes))
        site.restart_agent(node)
        if self._weather.strikes("forgetful", 0.3):
            self._weather.struck["forgetful after a restart"] += 1
            self._forget(site.cluster.nodes[NodeId(node)])

    def _opening(self, site: Site) -> Iterator[tuple[PretendNode, JobId]]:
        for node in site.cluster.nodes.values():
            for run in node.runs.values():
                grant = self._ledger.grants.get(run.order.grant)
                part = grant.part(node.id) if grant and run.state is FoundState.WAITING else None
                if part is not None and part.state is PartState.CLAIMED:
                    yield node, run.order.job

    def _for_a_while(self, kind: str, switch: str) -> None:
        node = self._node(kind)
        setattr(node, switch, True)
        self._until(self._seconds(kind), lambda: setattr(node, switch, False))

    def _keep_back(self) -> None:
        site = self._site("watch")
        site.keep_back()
        self._until(self._weather.dice_of("watch").choice((5.0, 15.0, 40.0)), site.let_go)

    def _forget(self, node: PretendNode) -> None:
        node.forgetful, node.ready = True, self._weather.dice_of("forgetful").random() < 0.5

        def mend() -> None:
            node.forgetful, node.ready = False, True

        self._until(self._seconds("forgetful"), mend)

    def _refuse(self) -> None:
        node = self._node("refusal")
        node.refusal = reason(Layer.NODE, Code.LAUNCH_REFUSED, "no room")
        self._until(self._seconds("refusal"), lambda: setattr(node, "refusal", None))

    def _blind(self) -> None:
        node = self._node("blind")
        node.blindness = reason(Layer.NODE, Code.NODE_BLIND, "the runtime folder is gone")
        self._until(self._seconds("blind"), lambda: setattr(node, "blindness", None))

    def _start_native(self) -> bool:
        node = self._node("native")
        self._natives += 1
        started = start_native(node, self._weather.dice_of("native"), self._natives)
        if started:
            self._until(self._seconds("native"), lambda: end_natives(node))
        return started

    def _let_slip_in(self) -> bool:
        node = self._movers.slip_in()
        if node is not None:
            self._until(self._seconds("neighbour"), lambda: end_natives(node))
        return node is not None

    def _seconds(self, kind: str) -> float:
        return self._weather.dice_of(kind).choice((1.0, 5.0, 15.0, 40.0))

    # people

    def _drain(self) -> None:
        dice = self._weather.dice_of("drain")
        node = self._node("drain").id
        self._stage.inventory.mark(node, dice.choice((MarkEffect.DRAIN, MarkEffect.NO_SCHEDULE)), dice)
        self._until(dice.choice((5.0, 30.0, 60.0)), lambda: self._stage.inventory.lift(node))

    def _drain_under_results(self) -> bool:
        """Drain a node on which a run has ended, and nobody but dispatch knows of it yet."""
        live = [grant for fact in self._stage.dispatch.unsaid_results() if (grant := fact.grant) in self._ledger.live]
        if live:
            node = self._ledger.grants[live[0]].parts[0].node
            self._stage.inventory.mark(node, MarkEffect.DRAIN, self._weather.dice_of("late"))
            self._until(30.0, lambda: self._stage.inventory.lift(node))
        return False  # what counts is the pause

    def _override(self) -> bool:
        """A person's word, right or wrong: no two attempts may run on a device even so (R11, G3)."""
        stuck = self._escalated()
        if stuck:
            self._settle(*self._weather.dice_of("override").choice(stuck))
        return bool(stuck)

    def _settle_what_is_gone(self) -> None:
        """Let a person settle whatever is escalated on nodes that never come back, and nothing else (R11)."""
        gone = {node for site in self._stage.sites for node in site.gone}

        def look() -> bool:
            for grant, node in self._escalated():
                if node in gone:
                    self._settle(grant, node)
            self._stage.ground.timeline.after(10.0, look)
            return True

        if gone:
            look()

    def _escalated(self) -> list[tuple[GrantId, NodeId]]:
        return [
            (grant.id, part.node)
            for part, grant in self._ledger.live_parts()
            if part.state is PartState.REVOKING and part.escalated_at is not None
        ]

    def _settle(self, grant: GrantId, node: NodeId) -> None:
        replica = self._stage.replicas[0]
        self._stage.overridden.add(grant)

        def work(turn: LedgerTurn) -> None:
            replica.desk.take(turn, {grant: lambda held, now: override(held, node, WORD, now=now)})

        replica.later(0.0, lambda: replica.turn(work))


def _any_issued(ledger: Ledger) -> bool:
    """Whether something is granted and not claimed yet: a backup made now knows least of what follows."""
    return any(part.state is PartState.ISSUED for grant in ledger.grants.values() for part in grant.parts)
