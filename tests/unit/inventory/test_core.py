"""What inventory says of the fleet: what changed, once; whatever the order, the newest counts."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import Event, fact_name
from schemas.fleet import (
    ClusterChanged,
    ClusterDiscovered,
    MarkEffect,
    NodeChanged,
    NodeDiscovered,
    NodeFreshened,
    NodeInfo,
    NodeRetired,
    NodeWentStale,
)
from schemas.ids import NodeId
from services.inventory.core import Policy, Standing, View, decide, elapse, evolve, said
from tests.support.builders import DEMO, NOON, a_node_id, a_queue, at
from tests.support.builders_fleet import (
    a_class,
    a_cluster,
    a_drain,
    a_lift,
    a_mark,
    a_node_spec,
    a_report,
    an_info,
    some_devices,
)

POLICY = Policy(stale_seconds=30, retire_seconds=30)


@dataclass
class Desk:
    """Inventory in memory: hear facts at a time, as the handlers do."""

    view: View = field(default_factory=View)
    facts: list[Event] = field(default_factory=list)
    version: int = 0

    def hear(self, *facts: Event, now: datetime = NOON) -> list[str]:
        start = len(self.facts)
        for fact in facts:
            self.version += 1
            self.take(fact, self.version, now)
        return [short(fact) for fact in self.facts[start:]]

    def take(self, fact: Event, version: int, now: datetime = NOON) -> None:
        after = evolve(self.view, fact, version=version, now=now)
        node: NodeId | None = getattr(fact, "node", None)
        self._say(after, after.nodes if node is None else [node])

    def clock(self, now: datetime, *, granted: Iterable[NodeId] = ()) -> list[str]:
        start = len(self.facts)
        after = elapse(replace(self.view, granted=frozenset(granted)), POLICY, now=now)
        self._say(after, after.nodes)
        return [short(fact) for fact in self.facts[start:]]

    def _say(self, after: View, nodes: Iterable[NodeId]) -> None:
        told = tuple(decide(self.view, after, nodes))
        self.facts += [each.fact for each in told]
        self.view = said(after, told)

    def info(self, node: str = "n1") -> NodeInfo | None:
        return self.view.nodes[a_node_id(node)].said

    def standing(self, node: str) -> Standing:
        return self.view.nodes[a_node_id(node)].standing


def short(fact: Event) -> str:
    return fact_name(type(fact)).removeprefix("fleet.")


def a_desk(*nodes: str, reported: bool = True) -> Desk:
    desk = Desk()
    desk.hear(a_class(), a_cluster(*nodes))
    if reported:
        desk.hear(*(a_report(node) for node in nodes))
    desk.facts.clear()
    return desk


def test_a_document_discovers_its_cluster_and_nodes_with_classes_and_places() -> None:
    desk = Desk()
    place = {"block": "b1", "rack": "r1"}
    heard = desk.hear(a_class(), a_cluster(a_node_spec(devices=2, place=place, cpu="4", memory="8Gi")))
    assert heard == ["cluster.discovered", "node.discovered"]
    assert desk.facts == [
        ClusterDiscovered(cluster=DEMO, name="demo", backend="local", levels=("block", "rack")),
        NodeDiscovered(
            info=an_info(devices=2, place=place, reported=False, cpu_milli=4_000, memory_mib=8_192),
        ),
    ]


def test_the_first_report_changes_the_node_and_the_next_ones_say_nothing() -> None:
    desk = a_desk("n1", reported=False)
    assert desk.hear(a_report()) == ["node.changed"]
    assert desk.facts == [NodeChanged(info=an_info())]
    assert desk.hear(a_report(sequence=2), a_report(sequence=3)) == []


def test_reported_devices_replace_declared_ones_and_equal_ones_keep_their_ids() -> None:
    desk = a_desk("n1", reported=False)
    declared = desk.info()
    desk.hear(a_report())
    reported = desk.info()
    assert declared is not None
    assert reported is not None
    assert [d.device for d in declared.devices] == [d.device for d in reported.devices]
    other = some_devices(count=2, maker="GPU-real")
    assert desk.hear(a_report(sequence=2, devices=other)) == ["node.changed"]
    assert desk.hear(a_cluster(a_node_spec(devices=4))) == []
    assert [device.device for device in desk.view.nodes[a_node_id()].devices] == [device.device for device in other]


def test_an_agent_of_a_declared_cluster_makes_its_undeclared_node_known() -> None:
    desk = a_desk("n1")
    assert desk.hear(a_report("n9")) == ["node.discovered"]
    assert desk.facts == [NodeDiscovered(info=an_info("n9"))]
    assert desk.hear(a_report("x1", cluster="elsewhere")) == []
    assert desk.hear(a_cluster("n1", "n9")) == []
    assert desk.standing("n9") is Standing.DECLARED


def test_a_class_applied_later_classes_the_nodes_it_matches() -> None:
    desk = Desk()
    desk.hear(a_cluster("n1", a_node_spec("n2", model="other")), a_report())
    assert desk.hear(a_class(model="other")) == ["node.changed"]
    assert desk.hear(a_class()) == ["node.changed", "node.changed"]
    assert desk.info() == an_info()
    other = desk.info("n2")
    assert other is not None
    assert {device.gpu_class for device in other.devices} == {None}


def test_of_two_classes_that_match_one_model_the_first_by_name_counts() -> None:
    for order in permutations([a_class("h100"), a_class("gold")]):
        desk = Desk()
        desk.hear(*order, a_cluster("n1"))
        info = desk.info()
        assert info is not None
        assert {device.gpu_class for device in info.devices} == {"gold"}


def test_silence_makes_a_node_stale_and_its_next_report_fresh() -> None:
    desk = a_desk("n1", "n2")
    desk.hear(a_report("n2", 2), now=at(20))
    assert desk.clock(at(29)) == []
    assert desk.clock(at(30)) == ["node.went_stale"]
    assert desk.clock(at(31)) == []
    assert desk.hear(a_report(sequence=2), now=at(40)) == ["node.freshened"]
    assert desk.facts == [
        NodeWentStale(node=a_node_id("n1"), cluster=DEMO, last_report_at=NOON),
        NodeFreshened(node=a_node_id("n1"), cluster=DEMO, reported_at=at(40)),
    ]


def test_a_node_that_never_reported_is_not_stale() -> None:
    desk = a_desk("n1", reported=False)
    assert desk.clock(at(3_600)) == []
    info = desk.info()
    assert info is not None
    assert (info.reported, info.stale) == (False, False)


def test_a_node_that_comes_back_with_other_devices_freshens_and_changes() -> None:
    desk = a_desk("n1")
    desk.clock(at(30))
    assert desk.hear(a_report(sequence=2, devices=some_devices(count=7))) == ["node.freshened", "node.changed"]
    assert desk.facts[-1] == NodeChanged(info=an_info(devices=7))
    assert desk.view.nodes[a_node_id()].version == 5


def test_a_blind_agent_is_heard_but_tells_nothing_of_devices() -> None:
    desk = a_desk("n1", reported=False)
    assert desk.hear(a_report(devices=(), blind=True)) == []
    assert desk.clock(at(30)) == ["node.went_stale"]
    assert desk.hear(a_report(sequence=2)) == ["node.freshened", "node.changed"]
    assert desk.hear(a_report(sequence=3, devices=(), blind=True)) == []


def test_an_empty_answer_takes_no_device_away_but_none_is_offered() -> None:
    desk = a_desk("n1")
    assert desk.hear(a_report(sequence=2, devices=())) == ["node.changed"]
    assert desk.info() == an_info(reported=False)
    assert desk.hear(a_report(sequence=3)) == ["node.changed"]
    assert desk.info() == an_info()


def test_an_older_report_changes_nothing_and_does_not_count_as_heard() -> None:
    desk = a_desk("n1")
    desk.hear(a_report(sequence=9))
    desk.clock(at(30))
    assert desk.hear(a_report(sequence=8, devices=some_devices(count=1)), now=at(40)) == []


def test_an_agent_whose_clock_was_put_back_is_heard_from_its_hello_on() -> None:
    desk = a_desk("n1")
    desk.hear(a_report(sequence=1_000))
    reborn = some_devices(count=2)
    hello = a_report(sequence=500, incarnation="agent-2", hello=True, devices=reborn)
    assert desk.hear(hello, a_report(sequence=501, incarnation="agent-2", devices=reborn)) == ["node.changed"]
    assert desk.clock(at(30)) == ["node.went_stale"]
    assert desk.hear(a_report(sequence=502, incarnation="agent-2", devices=reborn)) == ["node.freshened"]


def test_a_drain_marks_the_node_and_its_lift_ends_the_mark() -> None:
    desk = a_desk("n1")
    assert desk.hear(a_drain(), a_drain()) == ["node.changed"]
    assert desk.info() == an_info(marks=(a_mark(),))
    assert desk.hear(a_drain(effect=MarkEffect.DRAIN)) == ["node.changed"]
    assert desk.info() == an_info(marks=(a_mark(effect=MarkEffect.DRAIN),))
    assert desk.hear(a_lift()) == ["node.changed"]
    assert desk.info() == an_info()


def test_whatever_order_a_drain_comes_in_its_highest_version_stands() -> None:
    facts = {1: a_drain(), 2: a_drain(effect=MarkEffect.DRAIN), 3: a_lift()}
    for order in permutations((1, 2, 3, 1)):
        desk = a_desk("n1")
        for version in order:
            desk.take(facts[version], version)
        assert desk.info() == an_info()
    for order in permutations((1, 2)):
        desk = a_desk("n1")
        for version in order:
            desk.take(facts[version], version)
        assert desk.info() == an_info(marks=(a_mark(effect=MarkEffect.DRAIN),))


def test_a_mark_that_comes_before_its_node_stands_when_the_node_is_known() -> None:
    desk = a_desk()
    assert desk.hear(a_drain(), a_cluster("n1")) == ["node.discovered"]
    assert desk.info() == an_info(marks=(a_mark(),), reported=False, cpu_milli=0, memory_mib=0)


def test_a_node_left_out_takes_no_new_work_and_is_retired_when_nothing_is_granted_there() -> None:
    desk = a_desk("n1", "n2", "n3")
    n3 = a_node_id("n3")
    assert desk.hear(a_cluster("n1", "n2"), now=at(5)) == ["node.changed"]
    info = desk.info("n3")
    assert info is not None
    assert [(mark.owner, mark.effect, mark.since) for mark in info.marks] == [
        ("inventory", MarkEffect.NO_SCHEDULE, at(5))
    ]
    assert desk.clock(at(29), granted=[n3]) == []
    desk.hear(*(a_report(f"n{number}", 2) for number in (1, 2, 3)), now=at(30))
    assert desk.clock(at(40), granted=[n3]) == []
    assert desk.clock(at(40)) == ["node.retired"]
    assert desk.facts[-1] == NodeRetired(node=n3, cluster=DEMO)
    assert desk.hear(a_report("n3", 3), now=at(45)) == []
    assert desk.clock(at(50)) == []
    assert desk.hear(a_cluster("n1", "n2", "n3")) == ["node.discovered"]
    assert desk.info("n3") == an_info("n3")


def test_a_node_declared_again_in_time_stays() -> None:
    desk = a_desk("n1", "n2", "n3")
    assert desk.hear(a_cluster("n1", "n2"), a_cluster("n1", "n2", "n3")) == ["node.changed", "node.changed"]
    assert desk.clock(at(29)) == []
    assert desk.info("n3") == an_info("n3")


def test_a_mark_outlives_a_retirement() -> None:
    desk = a_desk("n1", "n2", "n3")
    desk.hear(a_drain("n3"), a_cluster("n1", "n2"))
    assert "node.retired" in desk.clock(at(30))
    desk.hear(a_cluster("n1", "n2", "n3"))
    assert desk.info("n3") == an_info("n3", marks=(a_mark(),), stale=True)


def test_a_document_that_takes_more_than_half_of_the_nodes_in_service_is_applied_for_the_rest() -> None:
    desk = a_desk("n1", "n2", "n3", "n4")
    assert desk.hear(a_cluster("n1", a_node_spec("n5", 2))) == ["node.discovered"]
    assert [desk.standing(f"n{number}") for number in range(2, 6)] == [Standing.HELD] * 3 + [Standing.DECLARED]
    assert desk.clock(at(29)) == []


@pytest.mark.parametrize("again", ["declared", "confirmed"])
def test_nodes_held_back_stay_in_service_until_they_are_declared_again_or_cordoned(again: str) -> None:
    desk = a_desk("n1", "n2")
    desk.hear(a_cluster())
    assert [desk.standing(node) for node in ("n1", "n2")] == [Standing.HELD] * 2
    if again == "declared":
        assert desk.hear(a_cluster("n1", "n2")) == []
        assert desk.standing("n1") is Standing.DECLARED
        return
    assert desk.hear(a_drain("n1")) == ["node.changed"]
    assert desk.standing("n1") is Standing.LEFT_OUT
    assert desk.clock(at(29)) == []
    assert "node.retired" in desk.clock(at(30))
    assert desk.standing("n2") is Standing.HELD


def test_nodes_that_are_marked_or_never_reported_may_leave_in_any_number() -> None:
    unreported = a_desk("n1", "n2", "n3", reported=False)
    assert unreported.hear(a_cluster("n1")) == ["node.changed", "node.changed"]
    cordoned = a_desk("n1", "n2", "n3")
    cordoned.hear(a_drain("n2", "d2"), a_drain("n3", "d3"))
    assert cordoned.hear(a_cluster("n1")) == ["node.changed", "node.changed"]
    assert cordoned.clock(at(30)).count("node.retired") == 2


def test_silent_nodes_do_not_make_a_large_cut_look_small() -> None:
    desk = a_desk("n1", "n2", "n3")
    desk.hear(a_report("n1", 2), now=at(29))
    desk.clock(at(30))
    assert desk.hear(a_cluster("n1")) == []
    assert desk.standing("n2") is Standing.HELD


def test_an_older_document_changes_nothing_and_a_new_backend_changes_the_cluster_alone() -> None:
    desk = a_desk("n1")
    older = desk.version
    assert desk.hear(a_cluster("n1", backend="pretend")) == ["cluster.changed"]
    assert desk.facts == [ClusterChanged(cluster=DEMO, name="demo", backend="pretend", levels=())]
    desk.take(a_cluster("n1", "n2"), older)
    assert (len(desk.facts), a_node_id("n2") in desk.view.nodes) == (1, False)


def test_facts_of_no_concern_change_nothing() -> None:
    desk = a_desk("n1")
    view = desk.view
    assert desk.hear(a_queue()) == []
    assert desk.view == view


STEPS = st.lists(
    st.tuples(st.sampled_from(["report", "fewer", "drain", "lift", "clock"]), st.integers(1, 6)), max_size=30
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_in_any_order_and_number_the_newest_of_each_counts(steps: list[tuple[str, int]]) -> None:
    """The node's last word is that of the newest report and the newest drain, and nothing is said twice in a row."""
    heard = [(kind, version) for kind, version in steps if kind != "clock"]
    desk = a_desk("n1", reported=False)
    for kind, version in steps + heard:
        match kind:
            case "report" | "fewer":
                count = 8 if kind == "report" else version
                desk.take(a_report(sequence=2 * version + (kind == "report"), devices=some_devices(count=count)), 1)
            case "drain":
                desk.take(a_drain(), 2 * version)
            case "lift":
                desk.take(a_lift(), 2 * version + 1)
            case _:
                desk.clock(NOON)
    reports = {
        2 * version + (kind == "report"): 8 if kind == "report" else version
        for kind, version in heard
        if kind in ("report", "fewer")
    }
    drains = {2 * version + (kind == "lift"): kind for kind, version in heard if kind in ("drain", "lift")}
    marks = (a_mark(),) if drains and drains[max(drains)] == "drain" else ()
    expected = an_info(devices=reports[max(reports)] if reports else 8, marks=marks)
    unreported = {"reported": False, "cpu_milli": 0, "memory_mib": 0}
    assert desk.info() == (expected if reports else expected.model_copy(update=unreported))
    infos = [fact.info for fact in desk.facts if isinstance(fact, NodeChanged)]
    assert all(one != other for one, other in pairwise(infos))
