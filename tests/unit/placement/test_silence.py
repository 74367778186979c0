"""R7 and S39: silence marks, then ends attempts; whole clusters get longer; our own deafness ends nothing."""

from datetime import timedelta

from schemas.ids import ClusterId, NodeId
from services.placement.core.silence import Heard, Limits, Silence, judge
from tests.support.builders_placement import START

LIMITS = Limits(suspect_seconds=30, node_lost_seconds=300, cluster_lost_seconds=900, breaker_nodes=4)


def a_node(name: str, age: float | None, *, cluster: str = "a", suspect: bool = False) -> Heard:
    at = None if age is None else START - timedelta(seconds=age)
    return Heard(NodeId(name), ClusterId(cluster), at, suspect)


def judged(*nodes: Heard) -> Silence:
    return judge(nodes, LIMITS, now=START)


def test_three_missed_heartbeats_make_a_node_suspect_and_nothing_else() -> None:
    assert judged(a_node("n1", 29), a_node("n2", 30)) == Silence(suspect=(NodeId("n2"),))


def test_a_node_that_is_heard_again_is_fresh() -> None:
    assert judged(a_node("n1", 3, suspect=True)) == Silence(fresh=(NodeId("n1"),))


def test_a_node_that_was_never_heard_is_not_silent() -> None:
    assert judged(a_node("n1", None)) == Silence()


def test_a_node_is_lost_after_300_s_while_its_cluster_talks() -> None:
    assert judged(a_node("n1", 300, suspect=True), a_node("n2", 1)) == Silence(lost=(NodeId("n1"),))


def test_s39_a_whole_cluster_is_lost_after_900_s_and_not_before() -> None:
    other = a_node("m1", 1, cluster="b")
    assert judged(a_node("n1", 899, suspect=True), a_node("n2", 880, suspect=True), other) == Silence()
    lost = judged(a_node("n1", 920, suspect=True), a_node("n2", 900, suspect=True), other)
    assert lost == Silence(lost=(NodeId("n1"), NodeId("n2")))


def test_most_of_a_fleet_silent_at_once_is_rather_our_own_deafness() -> None:
    nodes = [a_node(f"n{i}", 1_000) for i in range(5)] + [a_node(f"m{i}", 1) for i in range(4)]
    assert judged(*nodes) == Silence(deaf=True)
    assert len(judged(*nodes[2:]).suspect) == 3
