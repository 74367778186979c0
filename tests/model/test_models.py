"""The protocol models give the results they gave when the rules were written."""

import pytest

from tests.model.__main__ import CONFIGURATIONS, search
from tests.model.expected import EXPECTED, SMALL_STATES

SMALL = [name for name, expected in EXPECTED.items() if expected.states < SMALL_STATES]


def test_every_configuration_has_an_expected_result() -> None:
    assert set(CONFIGURATIONS) == set(EXPECTED)


@pytest.mark.parametrize("name", SMALL)
def test_a_small_model_gives_the_expected_result(name: str) -> None:
    assert search(name) == EXPECTED[name]
