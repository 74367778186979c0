from pathlib import Path

import pytest

from tests.tidy import tree
from tests.tidy.rules import testing

POLLS = Path("tests/support/eventually.py")  # the one place where a test may wait, because it looks again each time


@pytest.mark.parametrize("call", ["time.sleep(1)", "sleep(0.1)", "await asyncio.sleep(delay)", "await anyio.sleep(2)"])
def test_a_sleep_is_found(call: str) -> None:
    assert testing.sleeps(f"async def test_x():\n    {call}") == ["2: sleeps"]


def test_letting_others_run_is_no_sleep() -> None:
    assert testing.sleeps("async def test_x():\n    await asyncio.sleep(0)") == []


@pytest.mark.parametrize(
    "call", ["Mock()", "mock.AsyncMock(spec=Bus)", "monkeypatch.setattr(bus, 'say', say)", "patch('x.y')"]
)
def test_a_mock_is_found(call: str) -> None:
    assert testing.mocks(f"def test_x(monkeypatch):\n    thing = {call}") == ["2: mocks"]


def test_an_environment_variable_is_no_mock() -> None:
    assert testing.mocks("def test_x(monkeypatch):\n    monkeypatch.setenv('HOME', '/')") == []


def test_a_test_that_asserts_nothing_is_found() -> None:
    assert testing.silent("async def test_x():\n    await run()") == ["1: test_x asserts nothing"]


@pytest.mark.parametrize("body", ["assert run()", "with pytest.raises(ValueError):\n        run()", "check_all(run())"])
def test_a_test_that_checks_is_not(body: str) -> None:
    assert testing.silent(f"def test_x():\n    {body}") == []


def test_a_test_that_calls_what_checks_is_not() -> None:
    assert testing.silent("def test_x():\n    both(1)\ndef both(x):\n    assert x") == []


def test_no_test_of_this_tree_sleeps() -> None:
    modules = ((place, source) for place, source in tree.modules("tests") if place != POLLS)
    assert [f"{place}:{fault}" for place, source in modules for fault in testing.sleeps(source)] == []


def test_no_test_of_this_tree_mocks() -> None:
    assert [f"{place}:{fault}" for place, source in tree.modules("tests") for fault in testing.mocks(source)] == []


def test_every_test_of_this_tree_asserts() -> None:
    assert [f"{place}:{fault}" for place, source in tree.modules("tests") for fault in testing.silent(source)] == []
