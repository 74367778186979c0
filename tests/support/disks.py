"""A small disk in memory that a test can fill to its last byte and give room again."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

LEFT_BYTES = tuple(1 << bits for bits in (16, 20, 22, 24))  # more, if more is written between the look and the mount


@dataclass(frozen=True)
class Disk:
    """A disk of its own at ``path``; its size costs no memory, what is on it does."""

    path: Path
    size_mib: int

    def fill(self) -> None:
        """Leave no room, or next to none."""
        assert any(self._resized(shutil.disk_usage(self.path).used + left) for left in LEFT_BYTES), self.path

    def clear(self) -> None:
        """Give room again."""
        assert self._resized(self.size_mib << 20), self.path

    def _resized(self, size: int) -> bool:
        words = ["mount", "-o", f"remount,size={size}", str(self.path)]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0


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
