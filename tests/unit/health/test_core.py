"""What health says of nodes: the newest order stands, silence is said once, and we suspect ourselves first."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import permutations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import Envelope, Event, fact_name
from schemas.fleet import (
    DrainAcknowledged,
    DrainCompleted,
    DrainLifted,
    DrainRequested,
    IncidentCleared,
    IncidentEscalated,
    IncidentOpened,
    Mark,
    MarkEffect,
    Severity,
)
from schemas.ids import DrainId, IncidentId, NodeId, derive
from schemas.reasons import Code
from services.health.core import Fleet, Node, Policy, Verb, decide, evolve, judge, say_incident
from tests.support.builders import DEMO, NOON, a_node_id, at
from tests.support.builders_fleet import a_report, an_order, changed, discovered, fleet_fact, report_fact, retired

POLICY = Policy(stale_seconds=30, lost_seconds=300, fleet_silent_percent=30, fleet_silent_nodes=3, settle_seconds=5)
N1 = a_node_id("n1")
FIRST = DrainId(derive("drain", N1, 1))
SILENCE = IncidentId(derive("incident", N1, 1))


@dataclass
class Desk:
    """Health in memory: hear facts at a time, as the handlers do."""

    nodes: dict[NodeId, Node] = field(default_factory=dict)
    facts: list[Event] = field(default_factory=list)
    silent_at: datetime | None = None

    def hear(self, *envelopes: Envelope, now: datetime = NOON) -> list[str]:
        start = len(self.facts)
        for envelope in envelopes:
            key = NodeId(getattr(envelope.data, "node", envelope.key))
            node = evolve(self.nodes.get(key, Node(key, DEMO)), envelope, now=now)
            self._decide(node, now)
        return [short(fact) for fact in self.facts[start:]]

    def grant(self, held: bool, *, node: NodeId = N1, now: datetime = NOON) -> list[str]:
        start = len(self.facts)
        self._decide(replace(self.nodes[node], granted=held), now)
        return [short(fact) for fact in self.facts[start:]]

    def watch(self, now: datetime) -> list[str]:
        start = len(self.facts)
        fleet = self.fleet(now)
        if fleet.is_silent(POLICY):
            self.silent_at = now
        for node in list(self.nodes.values()):
            fact = judge(node, replace(fleet, silent_at=self.silent_at), POLICY, now=now)
            if fact is not None:
                self.nodes[node.id], said = say_incident(node, fact)
                self.facts.append(said.fact)
        return [short(fact) for fact in self.facts[start:]]

    def fleet(self, now: datetime) -> Fleet:
        heard = [node for node in self.nodes.values() if node.beat is not None and not node.retired]
        fallen = [n for n in heard if n.beat and (now - n.beat.at).total_seconds() >= 30]
        lost = [n for n in fallen if n.incident and n.incident.severity is Severity.LOST]
        return Fleet(talking=len(heard) - len(fallen), fallen=len(fallen) - len(lost))

    def _decide(self, node: Node, now: datetime) -> None:
        self.nodes[node.id], facts = decide(node, POLICY, now=now)
        self.facts += [said.fact for said in facts]


def short(fact: Event) -> str:
    return fact_name(type(fact)).removeprefix("fleet.")


def order(verb: Verb, version: int = 1, *, name: str = "o1", seconds: float = 0, why: str = "new firmware") -> Envelope:
    fact = fleet_fact(an_order(verb, why=why), f"order_{name}", version)
    return replace(fact, time=at(seconds))


def node_fact(version: int, *marks: Mark, node: str = "n1") -> Envelope:
    fact = discovered(node, marks=marks) if version == 1 else changed(node, marks=marks)
    return fleet_fact(fact, a_node_id(node), version)


def a_mark_of(effect: MarkEffect, drain: DrainId = FIRST) -> Mark:
    return Mark(drain=drain, effect=effect, owner="ops@x", reason="new firmware", session="s1", since=NOON)


def a_desk(*nodes: str) -> Desk:
    desk = Desk()
    for name in nodes or ("n1",):
        desk.hear(node_fact(1, node=name), report_fact(a_report(name)))
    return desk


CORDONED, DRAINED = a_mark_of(MarkEffect.NO_SCHEDULE), a_mark_of(MarkEffect.DRAIN)


def test_a_cordon_is_requested_and_complete_when_the_mark_stands() -> None:
    desk = a_desk()
    desk.grant(True)
    assert desk.hear(order("cordon"), now=at(1)) == ["drain.requested"]
    assert desk.hear(node_fact(2), now=at(2)) == []
    assert desk.hear(node_fact(3, CORDONED), now=at(3)) == ["drain.acknowledged", "drain.completed"]
    assert desk.facts == [
        DrainRequested(
            drain=FIRST,
            cluster=DEMO,
            node=N1,
            effect=MarkEffect.NO_SCHEDULE,
            owner="ops@x",
            reason="new firmware",
            session="s1",
            requested_at=at(1),
        ),
        DrainAcknowledged(drain=FIRST, cluster=DEMO, node=N1),
        DrainCompleted(drain=FIRST, cluster=DEMO, node=N1, completed_at=at(3)),
    ]


def test_a_drain_is_complete_when_nothing_is_granted_there_and_nothing_can_be_on_its_way() -> None:
    desk = a_desk()
    desk.grant(True)
    assert desk.hear(order("drain"), node_fact(2, DRAINED)) == ["drain.requested", "drain.acknowledged"]
    assert desk.grant(True, now=at(60)) == []
    assert desk.grant(False, now=at(60)) == ["drain.completed"]
    quick = a_desk()
    assert quick.hear(order("drain"), node_fact(2, DRAINED)) == ["drain.requested", "drain.acknowledged"]
    assert quick.grant(False, now=at(4)) == []
    assert quick.grant(False, now=at(5)) == ["drain.completed"]


def test_the_same_order_twice_is_one_drain_and_a_weaker_one_changes_nothing() -> None:
    desk = a_desk()
    assert desk.hear(order("drain", name="o1"), order("drain", name="o2", seconds=1)) == ["drain.requested"]
    assert desk.hear(order("cordon", name="o3", seconds=2)) == []


def test_a_drain_after_a_cordon_is_the_same_one_with_more_effect() -> None:
    desk = a_desk()
    desk.hear(order("cordon"), node_fact(2, CORDONED))
    assert desk.hear(order("drain", name="o2", seconds=1)) == ["drain.requested"]
    assert desk.hear(node_fact(3, CORDONED)) == []
    assert desk.hear(node_fact(4, DRAINED)) == ["drain.acknowledged"]
    assert {fact.drain for fact in desk.facts if isinstance(fact, DrainRequested | DrainAcknowledged)} == {FIRST}


def test_an_uncordon_lifts_whatever_stands_and_the_next_drain_is_another() -> None:
    desk = a_desk()
    desk.hear(order("cordon"), node_fact(2, CORDONED))
    assert desk.hear(order("uncordon", name="o2", seconds=1, why="done")) == ["drain.lifted"]
    assert desk.facts[-1] == DrainLifted(drain=FIRST, cluster=DEMO, node=N1, lifted_by="ops@x", reason="done")
    assert desk.hear(order("uncordon", name="o3", seconds=2)) == []
    assert desk.hear(order("cordon", name="o4", seconds=3)) == ["drain.requested"]
    assert desk.hear(node_fact(3, CORDONED)) == []
    second = a_mark_of(MarkEffect.NO_SCHEDULE, DrainId(derive("drain", N1, 2)))
    assert desk.hear(node_fact(4, second)) == ["drain.acknowledged", "drain.completed"]


def test_an_order_for_an_unknown_node_is_kept_until_the_node_shows_its_mark() -> None:
    desk = Desk()
    assert desk.hear(order("cordon")) == ["drain.requested"]
    assert desk.hear(node_fact(1, CORDONED)) == ["drain.acknowledged", "drain.completed"]


def test_a_retired_node_offers_nothing_so_its_drain_is_over_and_its_incident_too() -> None:
    desk = a_desk()
    desk.hear(order("drain"))
    desk.watch(at(30))
    gone = fleet_fact(retired(), N1, 2)
    assert desk.hear(gone, now=at(40)) == ["incident.cleared", "drain.acknowledged"]
    assert desk.grant(False, now=at(45)) == ["drain.completed"]
    assert desk.watch(at(400)) == []
    assert desk.hear(order("uncordon", name="o2", seconds=1), now=at(50)) == ["drain.lifted"]


def test_silence_opens_an_incident_once_and_the_next_report_clears_it() -> None:
    desk = a_desk("n1", "n2", "n3", "n4")
    others = [report_fact(a_report(name, 2)) for name in ("n2", "n3", "n4")]
    desk.hear(*others, now=at(20))
    assert desk.watch(at(29)) == []
    assert desk.watch(at(30)) == ["incident.opened"]
    assert desk.watch(at(31)) == []
    assert desk.hear(report_fact(a_report("n1", 2)), now=at(40)) == ["incident.cleared"]
    opened = desk.facts[0]
    assert isinstance(opened, IncidentOpened)
    assert (opened.incident, opened.severity, opened.since) == (SILENCE, Severity.STALE, NOON)
    assert (opened.reason.code, opened.reason.numbers) == (Code.HEARTBEAT_LOST, {"silent_seconds": 30})
    assert desk.facts[1:] == [IncidentCleared(incident=SILENCE, cluster=DEMO, node=N1, cleared_at=at(40))]


def test_a_long_silence_is_escalated_once_and_a_late_report_still_clears_it() -> None:
    desk = a_desk("n1", "n2", "n3", "n4")
    for second in range(10, 400, 10):
        desk.hear(*(report_fact(a_report(name, second)) for name in ("n2", "n3", "n4")), now=at(second))
        heard = desk.watch(at(second))
        assert heard == {30: ["incident.opened"], 300: ["incident.escalated"]}.get(second, [])
    worse = desk.facts[-1]
    assert isinstance(worse, IncidentEscalated)
    assert (worse.severity, worse.reason.code, worse.since) == (Severity.LOST, Code.HEARTBEAT_LOST, NOON)
    assert desk.hear(report_fact(a_report("n1", 2)), now=at(500)) == ["incident.cleared"]


def test_a_node_that_never_reported_or_that_inventory_does_not_know_has_no_incident() -> None:
    desk = Desk()
    desk.hear(node_fact(1, node="n1"), report_fact(a_report("n2")))
    assert desk.watch(at(3_600)) == []


def test_a_fleet_that_falls_silent_together_is_not_escalated_and_gets_its_time_again_afterwards() -> None:
    names = [f"n{number}" for number in range(1, 11)]
    desk = a_desk(*names)
    desk.hear(*(report_fact(a_report(name, 2)) for name in names[4:]), now=at(20))
    assert desk.watch(at(30)) == ["incident.opened"] * 4
    assert {fact.reason.code for fact in desk.facts if isinstance(fact, IncidentOpened)} == {Code.FLEET_SILENT}
    desk.hear(*(report_fact(a_report(name, 3)) for name in names[4:]), now=at(995))
    assert desk.watch(at(1_000)) == []
    assert (
        desk.hear(*(report_fact(a_report(name, 4)) for name in names[1:4]), now=at(1_001)) == ["incident.cleared"] * 3
    )
    assert desk.watch(at(1_002)) == []
    desk.hear(*(report_fact(a_report(name, 5)) for name in names[1:]), now=at(1_290))
    assert desk.watch(at(1_299)) == []
    assert desk.watch(at(1_300)) == ["incident.escalated"]


def test_the_fleet_is_silent_only_over_the_share_and_over_the_least_number_and_never_by_old_losses() -> None:
    shares = {(7, 3): False, (6, 3): True, (1, 2): False, (0, 3): True, (100, 43): True, (100, 42): False}
    assert {key: Fleet(*key).is_silent(POLICY) for key in shares} == shares
    desk = a_desk("n1", "n2")
    desk.watch(at(30))
    desk.watch(at(300))
    assert desk.fleet(at(300)) == Fleet(talking=0, fallen=0)


def test_s52_every_order_of_four_facts_twice_over_ends_with_the_highest_version() -> None:
    """Health says a node unfit, fitter and fit; whatever comes late, the node ends in service (S52)."""
    facts = [order("cordon", 1, name="a"), order("drain", 2, name="b"), order("uncordon", 3, name="c")]
    for wanted, last in ((None, ()), (MarkEffect.NO_SCHEDULE, (order("cordon", 4, name="d"),))):
        for arrival in permutations([*facts, *last, facts[0]]):
            desk = a_desk()
            desk.hear(*arrival)
            drain = desk.nodes[N1].drain
            assert (drain.effect if drain else None) is wanted, arrival


def test_s52_clocks_of_nodes_change_nothing() -> None:
    desks = [a_desk("n1", "n2", "n3", "n4") for _ in range(3)]
    for desk, skew in zip(desks, (-120, 0, 120), strict=True):
        for name in ("n2", "n3", "n4"):
            desk.hear(report_fact(a_report(name, 2, observed=at(20 + skew))), now=at(20))
        assert desk.watch(at(29)) == []
        assert desk.watch(at(30)) == ["incident.opened"]
    assert desks[0].facts == desks[1].facts == desks[2].facts


def test_an_older_word_of_inventory_does_not_bring_a_mark_back() -> None:
    desk = a_desk()
    assert desk.hear(order("cordon"), node_fact(9), node_fact(8, CORDONED)) == ["drain.requested"]


VERBS: tuple[Verb, ...] = ("cordon", "drain", "uncordon")
ORDERS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(1, 9)), max_size=8, unique_by=lambda o: o[1])


@settings(max_examples=200, deadline=None)
@given(ORDERS, st.randoms(use_true_random=False))
def test_in_any_order_and_number_the_same_orders_end_in_the_same_service(
    orders: list[tuple[Verb, int]], dice: Random
) -> None:
    shuffled = [*orders, *orders]
    dice.shuffle(shuffled)
    desk = a_desk()
    desk.hear(*(order(verb, version, name=f"o{version}") for verb, version in shuffled))
    ordered = [verb for verb, _ in sorted(orders, key=lambda each: each[1])]
    since = ordered[len(ordered) - ordered[::-1].index("uncordon") :] if "uncordon" in ordered else ordered
    wanted = MarkEffect.DRAIN if "drain" in since else MarkEffect.NO_SCHEDULE if since else None
    drain = desk.nodes[N1].drain
    assert (drain.effect if drain else None) is wanted
    open_drains: set[DrainId] = set()
    for fact in desk.facts:
        if isinstance(fact, DrainRequested):
            assert open_drains <= {fact.drain}
            open_drains = {fact.drain}
        elif isinstance(fact, DrainLifted):
            open_drains.remove(fact.drain)
