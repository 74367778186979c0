"""One folder that only its owner can enter, with files that containers' users can read once they are mounted."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DEFAULT: Final = Path(".triplane/compose")
MOUNTED: Final = 0o444  # a mount keeps it, and a container's user is not the owner; the folder is the wall
PRIVATE: Final = 0o600


def open_private(root: Path) -> None:
    """Make the folder, or close it to others; git never looks into it. Raises OSError."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.chmod(0o700)
    fill(root, {".gitignore": "*\n"})


def fill(root: Path, texts: Mapping[str, str]) -> list[str]:
    """Write the files that differ, each in one step; return their names. Raises OSError."""
    changed = [name for name, text in texts.items() if not _is(root / name, text)]
    for name in changed:
        write(root / name, texts[name], MOUNTED)
    return changed


def write(path: Path, text: str, mode: int) -> None:
    """Replace a file in one step; nobody reads it half written. Raises OSError."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(descriptor, mode)
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text
