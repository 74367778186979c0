"""S05: slices and shares of one device never oversell it, and fill it to its last MiB."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.resources.columns import replicas_that_fit, sum_by_group
from libs.resources.span import (
    STRIDE,
    UNITS_PER_MIB,
    Device,
    Lack,
    Range,
    Span,
    driver_reserve,
    union,
    units,
    whole,
)

MIB = UNITS_PER_MIB
CARD = Device(7, 46_068)


def shared_out(device: Device, asks: list[int], taken: tuple[Span, ...] = ()) -> list[Span | Lack]:
    """Return what each ask gets of what those before it have left."""
    got: list[Span | Lack] = []
    for asked in asks:
        got.append(device.share(asked, [*taken, *(each for each in got if isinstance(each, tuple))]))
    return got


def fit(got: list[Span | Lack]) -> list[bool]:
    return [isinstance(each, tuple) for each in got]


def test_s05_a_23_of_24_asks_for_2000_mib_fit_on_46068_mib() -> None:
    got = shared_out(CARD, [2_000 * MIB] * 24)
    assert fit(got) == [True] * 23 + [False]
    assert str(got[-1]) == "asked 2000 MiB, remaining 0.1 % (68 of 46068 MiB)"


def test_s05_b_22_fit_when_the_driver_keeps_three_percent() -> None:
    device = Device(7, 46_068, driver_reserve(46_068, 3))
    got = shared_out(device, [2_000 * MIB] * 24)
    assert fit(got) == [True] * 22 + [False] * 2
    assert str(got[-1]) == "asked 2000 MiB, remaining 1.5 % (686 of 44686 MiB)"
    assert device.reserve() == (Range(7 * STRIDE + 44_686 * MIB, 7 * STRIDE + 46_068 * MIB),)
    assert CARD.reserve() == ()


@pytest.mark.parametrize(
    ("memory_mib", "percent", "reserve"), [(46_068, 3, 1_382), (4_096, 3, 256), (46_068, 0, 0), (200, 3, 200)]
)
def test_s05_b_the_driver_keeps_256_mib_at_least(memory_mib: int, percent: int, reserve: int) -> None:
    assert driver_reserve(memory_mib, percent) == reserve


def test_s05_c_a_card_is_not_sold_whole_twice() -> None:
    got = shared_out(CARD, [CARD.thousandths(1_000)] * 2)
    assert fit(got) == [True, False]
    assert "remaining 0 %" in str(got[-1])
    assert CARD.share(1, [whole(7)]) == Lack(1, 0, 46_068 * MIB)


def test_s05_d_ten_tenths_fit_and_the_eleventh_does_not() -> None:
    got = shared_out(CARD, [CARD.thousandths(100)] * 11)
    assert fit(got) == [True] * 10 + [False]
    assert str(got[-1]) == "asked 4606.8 MiB, remaining 0 % (0 of 46068 MiB)"


def test_s05_e_three_times_330_and_10_thousandths_fit() -> None:
    got = shared_out(CARD, [CARD.thousandths(milli) for milli in (330, 330, 330, 10)])
    assert fit(got) == [True] * 4
    assert CARD.free([each for each in got if isinstance(each, tuple)]) == ()


def test_a_share_takes_what_slices_leave_in_several_pieces() -> None:
    device, base = Device(2, 40_960), 2 * STRIDE
    taken = [device.memory_slices(0, 2), device.memory_slices(4, 1)]
    assert units(device.memory_slices(7, 1)) == 5_120 * MIB
    assert device.free(taken) == (
        Range(base + 10_240 * MIB, base + 20_480 * MIB),
        Range(base + 25_600 * MIB, base + 40_960 * MIB),
    )
    assert device.share(11_000 * MIB, taken) == (
        Range(base + 10_240 * MIB, base + 20_480 * MIB),
        Range(base + 25_600 * MIB, base + 26_360 * MIB),
    )


def test_devices_have_nothing_in_common_and_a_slice_is_of_its_device() -> None:
    largest = Device(3, STRIDE // MIB)
    last = largest.memory_slices(7, 1)
    assert union([whole(3), whole(4)]) == (Range(3 * STRIDE, 5 * STRIDE),)
    assert units(union([whole(3), whole(4)])) == 2 * STRIDE
    assert union([whole(3), last]) == whole(3)


def test_a_device_of_unknown_memory_is_had_whole_and_never_shared() -> None:
    device = Device(5, 0)
    assert units(whole(5)) == STRIDE
    assert str(device.share(1, [])) == "asked 0.001 MiB, remaining 0 % (0 of 0 MiB)"


asks = st.lists(st.tuples(st.booleans(), st.integers(1, 400)), max_size=12)
devices = st.builds(Device, st.integers(0, 50), st.integers(1_000, 300_000), st.integers(0, 900))


@given(asks, devices, st.integers(0, 3))
def test_s05_shares_and_slices_never_overlap_and_what_is_left_is_what_was_not_given(
    wanted: list[tuple[bool, int]], device: Device, slices: int
) -> None:
    taken = [device.memory_slices(2 * first, 1) for first in range(slices)]
    for tens_of_mib, number in wanted:
        asked = number * 10 * MIB if tens_of_mib else device.thousandths(number)
        left, span = units(device.free(taken)), device.share(asked, taken)
        if isinstance(span, Lack):
            assert span == Lack(asked, left, device.thousandths(1_000))
            assert asked > left
            continue
        assert (units(span), units(device.free([*taken, span]))) == (asked, left - asked)
        taken.append(span)
    together = union(taken)
    assert units(together) == sum(map(units, taken))
    assert union([together, whole(device.ordinal)]) == whole(device.ordinal)
    assert all(before.stop < after.start for before, after in pairwise(together))


def test_a_node_holds_the_replicas_that_its_scarcest_resource_allows() -> None:
    devices, cpu, memory = (
        np.array(column, dtype=np.int64) for column in ([8, 8, 3, -1], [64, 9, 64, 64], [64, 64, 8, 64])
    )
    assert replicas_that_fit((devices, cpu, memory), (2, 4, 0)).tolist() == [4, 2, 1, 0]


def test_sums_by_group_leave_out_nodes_of_no_group() -> None:
    values, group = np.array([4, 2, 1], dtype=np.int64), np.array([1, -1, 1], dtype=np.int64)
    assert sum_by_group(values, group, 3).tolist() == [0, 5, 0]
