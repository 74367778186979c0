"""Control groups, version 2, where the machine lets us have them."""

import contextlib
import hashlib
import os
from pathlib import Path


def find_parent(node: str, *, mounts: Path = Path("/proc/self/mountinfo")) -> Path | None:
    """Return a folder in which runs' groups can be made; None: this machine gives us none.

    The mount is found by its type, not by its path: on hybrid machines it is not at the usual place.
    """
    for mount in _mounts(mounts):
        for base in (mount, mount / _own_group()):
            parent = base / "triplane" / node
            with contextlib.suppress(OSError):
                parent.mkdir(parents=True, exist_ok=True)
                if os.access(base / "cgroup.procs", os.W_OK) and (parent / "cgroup.kill").exists():
                    return parent
    return None


def name_of(node: str, runtime_dir: Path) -> str:
    """Return the name of a node's groups: two agents that stand in for a node of one name share no group."""
    return f"{node}-{hashlib.sha256(str(runtime_dir.absolute()).encode()).hexdigest()[:8]}"


def make(parent: Path | None, name: str) -> str | None:
    """Make a run's group; None when it cannot be made."""
    if parent is None:
        return None
    try:
        (parent / name).mkdir(exist_ok=True)
    except OSError:
        return None
    return str(parent / name)


def leave(parent: Path | None) -> None:
    """Remove a group, or the folder of a node's groups, unless something is in it."""
    if parent is not None:
        with contextlib.suppress(OSError):
            parent.rmdir()


def populated(group: Path) -> bool:
    """Say whether anything lives in the group or below it. Raises OSError other than for a group that is gone."""
    try:
        return "populated 1" in (group / "cgroup.events").read_text(encoding="ascii")
    except FileNotFoundError:
        return False


def kill(group: Path) -> None:
    """Kill everything in the group and below it, at once. Raises OSError other than for a group that is gone."""
    with contextlib.suppress(FileNotFoundError):
        (group / "cgroup.kill").write_text("1", encoding="ascii")


def _mounts(path: Path) -> list[Path]:
    lines = (line.split(" ") for line in path.read_text(encoding="utf-8").splitlines())
    return [Path(fields[4]) for fields in lines if fields[fields.index("-") + 1] == "cgroup2"]


def _own_group() -> str:
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        if line.startswith("0::"):
            return line[3:].strip("/")
    return ""
