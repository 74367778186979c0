"""`python -m tests.model [WORD...]`: search the configurations and compare them with the table; exit 1 on a difference.

Without a word all but the large ones run: about five minutes on one core and 3 GiB. A word picks by the beginning
of the name, the large ones too (A-noshort, A-mem3, A-big: four to eight minutes and 5 to 8 GiB each).
"""

import sys
from collections.abc import Mapping

from tests.model import fence, gang, leases, life, place, slots, timefence
from tests.model.expected import EXPECTED, LARGE_STATES, Expected
from tests.model.explore import Model, explore, report

CONFIGURATIONS: Mapping[str, Model] = {
    **fence.CONFIGS,
    **leases.CONFIGS,
    **life.CONFIGS,
    **place.CONFIGS,
    **gang.CONFIGS,
    **slots.CONFIGS,
    **timefence.CONFIGS,
}


def search(name: str) -> Expected:
    """Search one configuration and print what was found, with the trace of a violation."""
    model = CONFIGURATIONS[name]
    found = explore(model, liveness=name not in timefence.CONFIGS)
    report(name, found, model)
    return Expected(found.result, found.states, found.steps)


def chosen(words: list[str]) -> list[str]:
    """The names that begin with one of the words; without words, all but the large ones."""
    if words:
        return [name for name in CONFIGURATIONS if name.startswith(tuple(words))]
    return [name for name in CONFIGURATIONS if EXPECTED[name].states < LARGE_STATES]


def main() -> int:
    """Run, compare, and return the exit code."""
    names = chosen(sys.argv[1:])
    wrong = [name for name in names if search(name) != EXPECTED[name]]
    for name in wrong:
        print(f"DIFFERS from the table: {name}: expected {EXPECTED[name]}")
    print(f"{len(names) - len(wrong)} as expected, {len(wrong)} not")
    return 1 if wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main())
