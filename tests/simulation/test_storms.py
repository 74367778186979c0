"""Storms over the real cores: whatever is lost, late, doubled, crashed or lied, the invariants hold and work ends."""

from collections import Counter

import pytest

from tests.simulation.regressions import REGRESSIONS
from tests.simulation.storm import storm
from tests.simulation.weather import FAULTS

STEPS = 1_000
GROUP = 20
MORE = [pytest.param(first, marks=pytest.mark.storms) for first in range(GROUP, 200, GROUP)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", [0, *MORE])
def test_twenty_storms_break_nothing_and_leave_nothing_undone_while_every_kind_of_fault_strikes(first: int) -> None:
    told = [storm(str(seed), STEPS) for seed in range(first, first + GROUP)]
    assert {each.seed: each.breach for each in told if each.breach} == {}
    assert {each.steps for each in told} == {STEPS}
    struck = sum((each.struck for each in told), Counter[str]())
    assert [fault for fault, kind in FAULTS.items() if not struck[kind]] == []


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_a_storm_that_once_found_a_fault_finds_none(seed: str) -> None:
    assert storm(seed, STEPS).breach is None
