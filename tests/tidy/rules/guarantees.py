"""Every rule, trace and scenario that Triplane answers for has tests by name, and each named test is there."""

import re
from collections.abc import Collection, Iterator
from typing import Final

NAMED: Final = re.compile(r"`(test_[a-z0-9_]+)`")
ROW: Final = re.compile(r"\| ([A-Z]\d+) \|.*\|(.*)\|")
GAP: Final = re.compile(r"\* ((?:[A-Z]\d+(?:, )?)+):")


def _numbered(letter: str, last: int) -> Iterator[str]:
    return (f"{letter}{number}" for number in range(1, last + 1))


CODES: Final = frozenset(
    {
        *_numbered("R", 13),
        *_numbered("G", 8),
        *_numbered("L", 5),
        *_numbered("M", 5),
        *_numbered("A", 12),
        *_numbered("B", 6),
        *_numbered("C", 9),
        *_numbered("D", 7),
        *(f"S{number}" for number in ("02", "04", "05", "09", "11", "17", "18", "22", "37", "38", "39")),
        *(f"S{number}" for number in ("41", "42", "46", "50", "51", "52", "55")),
    }
)


def unkept(page: str, tests: Collection[str]) -> list[str]:
    """Return what is wrong: tests that are not there, and codes without a test that are not said to be missing."""
    gone = [f"there is no {name}" for name in NAMED.findall(page) if name not in tests]
    rows = {code: NAMED.findall(cell) for code, cell in ROW.findall(page)}
    missing = {code for codes in GAP.findall(page) for code in codes.split(", ")}
    bare = [f"{code} has no test" for code in sorted(CODES - missing) if not rows.get(code)]
    both = [f"{code} has tests and is said to be missing" for code in sorted(missing & rows.keys())]
    return [*gone, *bare, *both, *(f"{code} is no rule" for code in sorted((rows.keys() | missing) - CODES))]
