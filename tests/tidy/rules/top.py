"""The top of the tree: what has to be there, and what may."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

NEEDED: Final = frozenset(
    ".ci .editorconfig .github .gitignore .importlinter .pre-commit-config.yaml CHANGELOG.md CONTRIBUTING.md LICENSE "
    "Makefile README.md SECURITY.md cli deploy docs libs pyproject.toml requirements schemas services tests".split()
)
ALLOWED: Final = frozenset({".dockerignore", ".gitattributes", "benchmarks", "docker-compose.yml"})
KINDS_OF_TESTS: Final = frozenset(
    "backends browser conftest.py contract e2e integration model simulation support tidy unit __init__.py".split()
)


def faults(places: Iterable[Path]) -> list[str]:
    """Return what is at the top and should not be, and what should be and is not."""
    tops = {place.parts[0] for place in places}
    strange = [
        f"{name} is neither NEEDED nor ALLOWED in tests/tidy/rules/top.py" for name in sorted(tops - NEEDED - ALLOWED)
    ]
    return strange + [f"{name} is missing" for name in sorted(NEEDED - tops)]


def strange_tests(places: Iterable[Path]) -> list[str]:
    """Return what lies under `tests/` beside the kinds of tests there are."""
    return sorted({p.parts[1] for p in places if p.parts[0] == "tests"} - KINDS_OF_TESTS)
