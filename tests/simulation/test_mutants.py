"""Each rule that is left out is found out by one of a few storms, which names what broke."""

from typing import Final

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.storm import storm
from tests.simulation.weather import KINDS

STORMS: Final = 250
"""Any change of a core lets seeds tell other stories: then the next that finds it out will do, and costs time only."""


@pytest.mark.storms
@pytest.mark.timeout(600)
@pytest.mark.parametrize("left_out", MUTANTS)
def test_a_world_without_the_rule_breaks(left_out: str) -> None:
    mutant = MUTANTS[left_out]
    said: list[str] = []
    kinds = [kind for kind in KINDS if kind not in mutant.spared]
    for seed in (mutant.seed, *range(STORMS)):
        breach = storm(str(seed), mutant.steps, kinds=kinds, rules=mutant.rules).breach or "nothing broke"
        said.append(breach.removeprefix("BreachError: "))
        if said[-1].startswith(mutant.breach):
            break
    assert said[-1].startswith(mutant.breach), said
