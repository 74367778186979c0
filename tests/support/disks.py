"""A small disk in memory that a test can fill to its last byte and give room again."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

LEFT_BYTES = 1 << 16  # of a full disk: what was written between the look and the mount


@dataclass(frozen=True)
class Disk:
    """A disk of its own at ``path``; its size costs no memory, what is on it does."""

    path: Path
    size_mib: int

    def fill(self) -> None:
        """Leave no room."""
        self._resize(shutil.disk_usage(self.path).used + LEFT_BYTES)

    def clear(self) -> None:
        """Give room again."""
        self._resize(self.size_mib << 20)

    def _resize(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.path)], check=True)


@contextmanager
def disk(above: Path, size_mib: int) -> Iterator[Disk]:
    """Have one below a folder, gone afterwards. Skips the test where it cannot be mounted."""
    above.chmod(0o711)
    small = Disk(above / "disk", size_mib)
    small.path.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=0711", "none", str(small.path)]
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield small
    finally:
        subprocess.run(["umount", str(small.path)], check=True)
