"""Who holds a device's file: by its identity, so that another path to it, as in a container, hides nobody.

Blind spots are said, never passed over: a process that may not be looked into, a table of files that could not be read.
"""

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from services.agent.store.processes import pids, start_time

Key = tuple[str, int, int]
NOT_FILES: Final = ("socket:", "pipe:", "anon_inode:", "/memfd:")
KCMP: Final = 312
COMPARES: Final = os.uname().machine == "x86_64"  # the number is its own; elsewhere every thread's files are read
KCMP_FILES: Final = 2


@dataclass(frozen=True, slots=True)
class Scan:
    """Holders of each file (pids), and the processes that could not be looked into."""

    holders: Mapping[Path, frozenset[int]]
    blind: frozenset[int]


@dataclass(slots=True)
class _Search:
    wanted: dict[Key, Path]
    mapped: dict[tuple[int, int, int], Path]
    found: dict[Path, set[int]]
    blind: set[int] = field(default_factory=set)


def scan(files: list[Path], *, maps: bool = True) -> Scan:
    """Look for holders of the files in every process but this one. ``maps``: mappings too. Raises OSError."""
    search = _Search({}, {}, {path: set() for path in files})
    for path in files:
        status = path.stat()
        search.wanted[_key(status)] = path
        search.mapped[(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)] = path
    for pid in pids():
        if pid != os.getpid():
            _look_into(pid, search, maps=maps)
    return Scan({path: frozenset(found) for path, found in search.found.items()}, frozenset(search.blind))


def _look_into(pid: int, search: _Search, *, maps: bool) -> None:
    try:
        for table in _tables(pid):
            for key in _open_files(table):
                if key in search.wanted:
                    search.found[search.wanted[key]].add(pid)
        if maps:
            _look_at_maps(pid, search)
    except (FileNotFoundError, ProcessLookupError):
        return  # it ended meanwhile
    except OSError:
        if start_time(pid) is not None:  # what runs nothing holds nothing
            search.blind.add(pid)


def _tables(pid: int) -> Iterator[str]:
    """Yield the file tables of a process: a thread may have its own."""
    yield f"/proc/{pid}/fd"
    for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a scan of all, often
        if int(name) != pid and not _shared(pid, int(name)):
            yield f"/proc/{pid}/task/{name}/fd"


def _open_files(table: str) -> Iterator[Key]:
    for name in os.listdir(table):  # noqa: PTH208 - a scan of all, often
        path = f"{table}/{name}"
        with contextlib.suppress(FileNotFoundError):
            if not os.readlink(path).startswith(NOT_FILES):  # noqa: PTH115 - as above
                yield _key(os.stat(path))  # noqa: PTH116 - as above


def _look_at_maps(pid: int, search: _Search) -> None:
    names = {str(path): path for path in search.found}
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        major, minor = (int(number, 16) for number in fields[3].split(":"))
        path = search.mapped.get((major, minor, int(fields[4]))) or names.get(fields[5] if len(fields) > 5 else "")
        if path:
            search.found[path].add(pid)


def _key(status: os.stat_result) -> Key:
    if stat.S_ISCHR(status.st_mode):
        return ("c", status.st_rdev, 0)
    return ("f", status.st_dev, status.st_ino)


def _shared(pid: int, thread: int) -> bool:
    """Say whether a thread surely has the files of its process."""
    return bool(COMPARES and _libc().syscall(KCMP, pid, thread, KCMP_FILES, 0, 0) == 0)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
