"""The tree as its rules see it: what git tracks or would track."""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def files() -> tuple[Path, ...]:
    """Return the tree's files, relative to its root, sorted; what git ignores is not of the tree."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = {Path(name) for name in listed.stdout.split("\0") if name}
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


@cache
def text(place: Path) -> str | None:
    """Return the file's text, or None where it is no text."""
    try:
        return (ROOT / place).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def texts(*suffixes: str) -> Iterator[tuple[Path, str]]:
    """Yield each text file with one of these suffixes (all of them, if none is given) and its text."""
    for place in files():
        content = text(place) if not suffixes or place.suffix in suffixes else None
        if content is not None:
            yield place, content


def modules(*folders: str) -> Iterator[tuple[Path, str]]:
    """Yield each Python module under these top-level folders (all of them, if none is given) and its text."""
    for place, content in texts(".py"):
        if not folders or place.parts[0] in folders:
            yield place, content
