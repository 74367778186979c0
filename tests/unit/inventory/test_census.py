"""The four numbers: what is unknown, marked or unreported is neither allocatable nor idle."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import ClusterId, NodeId
from services.inventory.core import Numbers, Stock, count

EAST, WEST = ClusterId("east"), ClusterId("west")
FLEET = [
    Stock(EAST, NodeId("n1"), "h100", devices=8, reserved=3, offered=True),
    Stock(EAST, NodeId("n2"), "h100", devices=8, reserved=2, offered=False),
    Stock(EAST, NodeId("n2"), None, devices=1, reserved=0, offered=True),
    Stock(WEST, NodeId("n3"), "a100", devices=4, reserved=4, offered=True),
]


def test_the_numbers_add_up_by_cluster_by_class_and_by_node() -> None:
    assert count(FLEET, by=lambda stock: stock.cluster) == {EAST: Numbers(17, 8, 5, 5), WEST: Numbers(4, 4, 4, 0)}
    assert count(FLEET, by=lambda stock: stock.gpu_class) == {
        "h100": Numbers(16, 8, 5, 5),
        None: Numbers(1, 0, 0, 0),
        "a100": Numbers(4, 4, 4, 0),
    }
    assert count(FLEET, by=lambda stock: stock.node)[NodeId("n2")] == Numbers(9, 0, 2, 0)


STOCKS = st.builds(
    Stock,
    st.sampled_from([EAST, WEST]),
    st.sampled_from([NodeId("n1"), NodeId("n2")]),
    st.sampled_from(["h100", None]),
    devices=st.integers(0, 8),
    reserved=st.integers(0, 8),
    offered=st.booleans(),
)


@given(st.lists(STOCKS))
def test_idle_is_never_negative_nor_more_than_allocatable_and_the_sums_agree(stocks: list[Stock]) -> None:
    by_node = count(stocks, by=lambda stock: stock.node).values()
    whole = count(stocks, by=lambda _: "all").get("all", Numbers())
    assert sum(by_node, Numbers()) == whole
    assert 0 <= whole.idle <= whole.allocatable <= whole.total
