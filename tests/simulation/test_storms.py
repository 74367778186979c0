"""Storms over the real cores: whatever is lost, late, doubled, crashed or lied, the invariants hold and work ends."""

import pytest

from tests.simulation.storm import storm

STEPS = 1_000


@pytest.mark.parametrize("seed", [str(number) for number in range(40)])
def test_a_storm_breaks_nothing_and_leaves_nothing_undone(seed: str) -> None:
    result = storm(seed, STEPS)
    assert (result.breach, result.steps) == (None, STEPS)
