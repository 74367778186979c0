"""What must not stand in a public tree: addresses of registries, folders of one machine, open ends without an issue."""

import re
from pathlib import Path
from typing import Final

# Each is put together here, so that this file is not its own finding.
REGISTRIES: Final = tuple(
    f"{first}{last}"
    for first, last in (
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("index", "-url"),
        ("find", "-links "),
        ("proxy.golang", ".org"),
        ("registry.npmjs", ".org"),
        ("ghcr", ".io"),
        ("quay", ".io"),
        ("docker", ".io/"),
        ("deb.debian", ".org"),
        ("registry.k8s", ".io"),
    )
)
WORKPLACE: Final = tuple(
    f"{first}{last}" for first, last in (("/wo", "rk/"), ("BLUE", "PRINT"), ("../sha", "red/"), ("scra", "tch/v/"))
)
OPEN_END: Final = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b(?!\(#\d+\))")


def machine_folders(root: Path) -> tuple[str, ...]:
    """Return the folders that name this very machine: the home, and where the tree lies."""
    return tuple(f"{folder}/" for folder in (Path.home(), root) if len(folder.parts) > 1)


def found(content: str, words: tuple[str, ...]) -> list[str]:
    """Return `line: word` for each of the words in this text."""
    lines = enumerate(content.splitlines(), 1)
    return [f"{number}: {word}" for number, line in lines for word in words if word in line]


def open_ends(content: str) -> list[str]:
    """Return the lines with an open end that names no issue, as `(#12)` right behind it does."""
    return [str(n) for n, line in enumerate(content.splitlines(), 1) if OPEN_END.search(line)]
