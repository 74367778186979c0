"""S05: slices and shares of one device never oversell it."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from libs.resources.columns import replicas_that_fit, sum_by_group
from libs.resources.share import Share, capacity, of_memory, of_milli
from libs.resources.span import Range, Span, free, memory_slices, milli, overlaps, share, union, whole


def how_many_fit(device: Share, asks: list[Share]) -> list[bool]:
    left, fits = device, []
    for ask in asks:
        fits.append(ask.fits(left))
        left = left - ask if fits[-1] else left
    return fits


def test_23_of_24_asks_for_2000_mib_fit_on_46068_mib() -> None:
    device = capacity(46_068)
    assert how_many_fit(device, [of_memory(2_000, device)] * 24) == [True] * 23 + [False]


def test_22_fit_when_the_driver_keeps_three_percent() -> None:
    device = capacity(46_068, reserve_percent=3)
    assert device.memory_mib == 44_686
    assert how_many_fit(device, [of_memory(2_000, device)] * 24) == [True] * 22 + [False] * 2


def test_the_driver_keeps_256_mib_at_least() -> None:
    assert capacity(4_096, reserve_percent=3) == Share(1_000, 3_840)


def test_a_card_is_not_sold_whole_twice() -> None:
    device = capacity(46_068)
    assert how_many_fit(device, [of_milli(1_000, device)] * 2) == [True, False]
    assert share(7, 1, [whole(7)]) is None


def test_ten_tenths_fit_and_the_eleventh_does_not() -> None:
    device = capacity(46_068)
    assert how_many_fit(device, [of_milli(100, device)] * 11) == [True] * 10 + [False]


def test_three_times_330_and_10_thousandths_fit() -> None:
    device = capacity(46_068)
    assert how_many_fit(device, [of_milli(n, device) for n in (330, 330, 330, 10)]) == [True] * 4
    assert Share(990, 3) + Share(10, 1) == Share(1_000, 4)


def test_a_share_takes_free_thousandths_in_several_pieces() -> None:
    taken = [memory_slices(2, 0, 2), memory_slices(2, 4, 1)]
    assert free(2, taken) == (Range(2_250, 2_500), Range(2_625, 3_000))
    assert share(2, 300, taken) == (Range(2_250, 2_500), Range(2_625, 2_675))


def test_devices_never_share_a_thousandth() -> None:
    assert not overlaps(whole(3), whole(4))
    assert overlaps(whole(3), memory_slices(3, 7, 1))


@given(st.lists(st.integers(1, 400), max_size=12), st.integers(0, 50))
def test_shares_of_one_device_never_overlap_and_leave_the_rest_free(asks: list[int], ordinal: int) -> None:
    given_out: list[Span] = []
    for asked in asks:
        span = share(ordinal, asked, given_out)
        if span is None:
            assert asked > milli(free(ordinal, given_out))
            continue
        assert milli(span) == asked
        given_out.append(span)
    together = union(given_out)
    assert milli(together) == sum(map(milli, given_out))
    assert milli(together) + milli(free(ordinal, given_out)) == 1_000
    assert all(left.stop < right.start for left, right in pairwise(together))


def test_a_node_holds_the_replicas_that_its_scarcest_resource_allows() -> None:
    devices, cpu, memory = (
        np.array(column, dtype=np.int64) for column in ([8, 8, 3, -1], [64, 9, 64, 64], [64, 64, 8, 64])
    )
    assert replicas_that_fit((devices, cpu, memory), (2, 4, 0)).tolist() == [4, 2, 1, 0]


def test_sums_by_group_leave_out_nodes_of_no_group() -> None:
    values, group = np.array([4, 2, 1], dtype=np.int64), np.array([1, -1, 1], dtype=np.int64)
    assert sum_by_group(values, group, 3).tolist() == [0, 5, 0]
