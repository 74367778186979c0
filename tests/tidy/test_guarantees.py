"""The page of guarantees is held against the tests."""

import re

import pytest

from tests.tidy.rules.guarantees import CODES, unkept
from tests.tidy.tree import ROOT

TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_[a-z0-9_]+)\(", path.read_text("utf-8"), re.MULTILINE)
}
PAGE = (ROOT / "docs" / "guarantees.md").read_text("utf-8")


def test_every_rule_has_tests_that_exist_or_is_said_to_be_missing() -> None:
    assert unkept(PAGE, TESTS) == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("| R1 | says | `test_of_nothing` |", "there is no test_of_nothing"),
        ("| R1 | says | none |", "R1 has no test"),
        ("| R1 | says | `test_a` |\n* R1: not built", "R1 has tests and is said to be missing"),
        ("| R99 | says | `test_a` |", "R99 is no rule"),
    ],
)
def test_a_page_that_says_too_much_is_found(line: str, complaint: str) -> None:
    rest = "\n".join(f"* {code}: not built" for code in sorted(CODES - {"R1"}))
    found = unkept(f"{line}\n{rest}" if "R99" not in line else f"{line}\n{rest}\n* R1: not built", {"test_a"})
    assert found == [complaint]
