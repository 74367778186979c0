"""Cycles of placement over fleets of a few nodes."""

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.ids import ClusterId
from schemas.reasons import Code
from services.placement.core.decide import Decision, Pending, Placement, decide
from services.placement.core.view import FleetView, Hold
from tests.support.builders_placement import START, a_fleet, a_gang, a_node


def where(placement: Placement) -> dict[str, int]:
    """Node -> devices."""
    return {part.node.name: sum(len(slot.devices) for slot in part.replicas) for part in placement.parts}


def placed(decision: Decision) -> dict[str, dict[str, int]]:
    return {placement.pending.job: where(placement) for placement in decision.placements}


def only_reason(view: FleetView, gang: Pending) -> tuple[str, dict[str, int], str, bool]:
    (refusal,) = decide(view, [gang]).refusals
    return refusal.reason.code, refusal.reason.numbers, refusal.reason.message, refusal.final


def test_a_gang_takes_the_node_that_keeps_the_fewest_devices() -> None:
    view = a_fleet(a_node("n1"), a_node("n2", free=3), a_node("n3", free=2), a_node("n4", free=2))
    assert placed(decide(view, [a_gang(each=2)])) == {"job_1": {"n3": 2}}


def test_a_gang_larger_than_a_node_takes_whole_nodes_and_then_the_tightest() -> None:
    view = a_fleet(a_node("n1"), a_node("n2", free=2), a_node("n3"), a_node("n4", free=4))
    assert placed(decide(view, [a_gang(replicas=9, each=2)])) == {"job_1": {"n1": 8, "n2": 2, "n3": 8}}


def test_all_devices_of_a_replica_are_on_one_node_and_ranks_run_along_the_nodes() -> None:
    (placement,) = decide(a_fleet(a_node("n1"), a_node("n2")), [a_gang(replicas=3, each=4)]).placements
    assert [(part.node.name, [slot.rank for slot in part.replicas]) for part in placement.parts] == [
        ("n1", [0, 1]),
        ("n2", [2]),
    ]
    assert [device.index for device in placement.devices] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]


def test_priority_goes_first_and_then_the_order_of_submission() -> None:
    gangs = [a_gang("late", after=9), a_gang("early", after=1), a_gang("urgent", after=30, priority=100)]
    decision = decide(a_fleet(a_node("n1"), a_node("n2")), gangs)
    assert placed(decision) == {"urgent": {"n1": 8}, "early": {"n2": 8}}


def test_s16_a_required_block_is_one_for_the_whole_gang() -> None:
    nodes = [a_node(f"a{i}", free=1, exist=1, block="b1") for i in range(9)]
    nodes += [a_node(f"b{i:02}", free=1, exist=1, block="b2") for i in range(10)]
    nodes += [a_node(f"c{i}", free=0, exist=1, block="b1") for i in range(3)]
    gang = a_gang(replicas=12, each=1, level="block", required=True)
    code, numbers, message, final = only_reason(a_fleet(*nodes), gang)
    assert (code, final) == (Code.TOPOLOGY_PLACEMENT_FAILED, False)
    assert numbers == {"needs": 12, "free": 19, "held": 0, "releasing": 0, "largest_domain": 10}
    assert message == "needs 12 (12 x 1), free 19, largest block 10"
    freed = [a_node(f"c{i}", free=1, exist=1, block="b1") for i in range(3)]
    (placement,) = decide(a_fleet(*nodes[:19], *freed), [gang]).placements
    assert {part.node.place["block"] for part in placement.parts} == {"b1"}


def test_a_preferred_rack_widens_to_the_block_and_then_to_the_cluster() -> None:
    nodes = [a_node(f"n{i}", block=f"b{i // 4}", rack=f"r{i // 2}") for i in range(8)]
    two, four, six = (a_gang(f"job_{n}", replicas=n, level="rack") for n in (2, 4, 6))
    for gang, blocks, racks in ((two, 1, 1), (four, 1, 2), (six, 2, 3)):
        (placement,) = decide(a_fleet(*nodes), [gang]).placements
        assert len({part.node.place["block"] for part in placement.parts}) == blocks
        assert len({part.node.place["rack"] for part in placement.parts}) == racks


def test_racks_of_one_name_in_two_blocks_are_two_domains() -> None:
    view = a_fleet(a_node("n1", block="b1", rack="r1"), a_node("n2", block="b2", rack="r1"))
    code, numbers, message, final = only_reason(view, a_gang(replicas=2, level="rack", required=True))
    assert (code, numbers["largest_domain"], final) == (Code.CAN_NEVER_FIT, 8, True)
    assert message == "can never fit: largest rack 8, needs 16 (2 x 8)"


def test_a_gang_never_spans_two_clusters() -> None:
    view = a_fleet(a_node("n1"), a_node("m1", cluster=ClusterId("cluster_b")))
    code, numbers, _, final = only_reason(view, a_gang(replicas=2))
    assert (code, numbers, final) == (Code.CAN_NEVER_FIT, {"asked": 16, "exist": 16, "largest_domain": 8}, True)


def test_cpu_and_memory_bound_the_replicas_of_a_node() -> None:
    view = a_fleet(a_node("n1", cpu_milli=9_000), a_node("n2", memory_mib=1_000), a_node("n3"))
    decision = decide(view, [a_gang(replicas=5, each=1, cpu_milli=4_000, memory_mib=1_000)])
    assert placed(decision) == {"job_1": {"n3": 5}}
    decision = decide(view, [a_gang(replicas=11, each=1, cpu_milli=4_000, memory_mib=1_000)])
    assert placed(decision) == {"job_1": {"n1": 2, "n2": 1, "n3": 8}}


def test_s61_the_free_and_the_held_devices_are_told_with_the_hold_and_since_when() -> None:
    nodes = [a_node("n1"), a_node("n2", free=4), a_node("n4", free=0)]
    held = Hold("health", "xid 79", START)
    code, numbers, message, final = only_reason(a_fleet(*nodes, a_node("n3", held=held)), a_gang(replicas=3))
    assert (code, final) == (Code.WAITING_FOR_CAPACITY, False)
    assert numbers == {"needs": 24, "free": 12, "held": 8, "releasing": 0, "largest_domain": 8}
    assert message == ("needs 24 (3 x 8), free 12, 8 more held on n3 (health: xid 79, since 2026-03-01T00:00:00+00:00)")
    assert only_reason(a_fleet(*nodes, a_node("n3")), a_gang(replicas=3))[2] == "needs 24 (3 x 8), free 20"


def test_s61_what_the_whole_fleet_cannot_hold_is_refused_for_good() -> None:
    view = a_fleet(*[a_node(f"n{i}", free=0) for i in range(4)])
    assert only_reason(view, a_gang(replicas=8)) == (
        Code.CAN_NEVER_FIT,
        {"asked": 64, "exist": 32, "largest_domain": 32},
        "can never fit: 64 asked, 32 exist",
        True,
    )


def test_s61_a_replica_that_no_node_holds_is_refused_with_the_size_of_the_largest_node() -> None:
    view = a_fleet(a_node("n1", free=0), a_node("n2", exist=4, free=4), a_node("n3"))
    assert only_reason(view, a_gang(each=16)) == (
        Code.CAN_NEVER_FIT,
        {"asked": 16, "exist": 20, "largest_domain": 0},
        "can never fit: a replica needs 16 on one node, the largest node has 8",
        True,
    )


def test_s61_a_replica_that_asks_for_more_cpu_than_any_node_has_is_told_so() -> None:
    _, _, message, final = only_reason(a_fleet(a_node("n1", cpu_milli=9_000)), a_gang(each=1, cpu_milli=10_000))
    assert (message, final) == ("can never fit: no node has the CPU and memory that a replica asks for", True)


def test_s25_devices_that_await_confirmation_are_named() -> None:
    view = a_fleet(a_node("n1", free=0, exist=1, releasing=1))
    _, numbers, message, _ = only_reason(view, a_gang(each=1))
    assert numbers == {"needs": 1, "free": 0, "held": 0, "releasing": 1, "largest_domain": 0}
    assert message == "needs 1, free 0, 1 awaiting confirmation from n1"


def test_a_class_that_no_node_has_waits_for_a_destination() -> None:
    code, numbers, _, final = only_reason(a_fleet(a_node("n1")), a_gang(gpu_class="a100"))
    assert (code, numbers, final) == (Code.NO_DESTINATION, {"needs": 8, "exist": 0}, False)


def test_one_cycle_tells_all_gangs_of_a_shape_the_numbers_that_it_leaves() -> None:
    gangs = [a_gang(f"job_{i}", after=i, each=3) for i in range(4)]
    decision = decide(a_fleet(a_node("n1")), gangs)
    assert [refusal.reason.numbers["free"] for refusal in decision.refusals] == [2, 2]


def test_s12_two_gangs_of_one_cycle_never_share_a_node_that_one_of_them_fills() -> None:
    view = a_fleet(a_node("n1", free=0), a_node("n3", rack="r1"), a_node("n4", rack="r1"))
    decision = decide(view, [a_gang("a"), a_gang("b")])
    assert placed(decision) == {"a": {"n3": 8}, "b": {"n4": 8}}


gangs_of_any_kind: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        replicas=st.integers(1, 5),
        each=st.integers(1, 8),
        priority=st.integers(0, 2),
        level=st.sampled_from([None, "rack", "block", "node", "nowhere"]),
        required=st.booleans(),
        cpu_milli=st.sampled_from([0, 8_000]),
    ),
    max_size=12,
)
fleets = st.lists(st.tuples(st.integers(0, 8), st.sampled_from("ab"), st.integers(0, 2), st.booleans()), max_size=8)


@settings(max_examples=200, deadline=None)
@given(fleets, gangs_of_any_kind)
def test_no_device_goes_to_two_gangs_and_every_gang_gets_all_or_a_reason(
    fleet: list[tuple[int, str, int, bool]], shapes: list[dict[str, Any]]
) -> None:
    nodes = [
        a_node(
            f"n{i}",
            free=free,
            cluster=ClusterId(f"cluster_{cluster}"),
            rack=f"r{rack}",
            block="b",
            cpu_milli=20_000,
            held=Hold("health", "test", START + timedelta(hours=1)) if held else None,
        )
        for i, (free, cluster, rack, held) in enumerate(fleet)
    ]
    view = a_fleet(*nodes)
    gangs = [a_gang(f"job_{i}", after=i, **shape) for i, shape in enumerate(shapes)]
    decision = decide(view, gangs)
    devices = [device.device for placement in decision.placements for device in placement.devices]
    offered = {device.device for row, stock in nodes if row.held is None for device in stock.free}
    assert len(devices) == len(set(devices))
    assert set(devices) <= offered
    told = [placement.pending.job for placement in decision.placements]
    told += [refusal.pending.job for refusal in decision.refusals]
    assert sorted(told) == sorted(gang.job for gang in gangs)
    for placement in decision.placements:
        check_whole(placement)
    for refusal in decision.refusals:
        if "free" in refusal.reason.numbers:
            assert refusal.reason.numbers["free"] == len(offered) - len(devices)


def check_whole(placement: Placement) -> None:
    demand = placement.pending.demand
    slots = [slot for part in placement.parts for slot in part.replicas]
    assert [slot.rank for slot in slots] == list(range(demand.replicas))
    assert all(len(slot.devices) == demand.devices_per_replica for slot in slots)
    assert len({part.node.cluster for part in placement.parts}) == 1
    if demand.topology_level in {"rack", "block"} and demand.topology_required:
        assert len({part.node.place[demand.topology_level] for part in placement.parts}) == 1
    for part in placement.parts:
        assert len(part.replicas) * demand.cpu_milli_per_replica <= part.node.cpu_milli
