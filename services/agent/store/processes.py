"""Processes by pidfd: shims are started, found again after a restart of the agent, signalled and waited for."""

import asyncio
import contextlib
import os
import pwd
import signal
import sys
from pathlib import Path
from typing import Final

from services.agent import shim
from services.agent.core.orders import MARK, Owner
from services.agent.core.runs import Instance

SHIM: Final = Path(shim.__file__).with_name("__main__.py")
GONE: Final = "ZXx"  # a zombie passes pid and start time, and runs nothing
_MARKED: Final = f"{MARK}=".encode()
PASSES: Final = 50  # over a tree that forks while it is killed


def start_shim(folder: Path) -> int:
    """Start the shim of a run in a session of its own; return its pidfd. Raises OSError."""
    log = str(folder / "shim.log")
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-B", str(SHIM), str(folder)],
        {"PATH": os.defpath},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD],
    )
    return os.pidfd_open(pid)


def adopt(instance: Instance) -> int | None:
    """Return a pidfd of the shim if it lives, for the caller to close.

    The pidfd comes first: once it is open, the pid that is then compared cannot become another's unnoticed.
    """
    try:
        fd = os.pidfd_open(instance.pid)
    except OSError:
        return None
    if start_time(instance.pid) == instance.start:
        return fd
    os.close(fd)
    return None


def lives(instance: Instance) -> bool:
    """Say whether this very shim runs now."""
    fd = adopt(instance)
    if fd is None:
        return False
    os.close(fd)
    return True


async def ended(fd: int) -> None:
    """Wait until the process of a pidfd has ended, and reap it when it was ours. Closes the pidfd."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, over.set)
    try:
        await over.wait()
        _reap(fd)
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _reap(fd: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG)


def terminate(instance: Instance) -> bool:
    """Ask a shim to end its run; False when it is gone."""
    fd = adopt(instance)
    if fd is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, signal.SIGTERM)
    os.close(fd)
    return True


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the boot; None when it runs nothing any more."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in GONE else int(fields[19])


def stat_fields(pid: int) -> list[str] | None:
    """Return /proc/<pid>/stat from the state on; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def pids() -> list[int]:
    """Return the processes that there are."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - a scan of all, often


def marked(mark: str) -> list[int]:
    """Return the living processes that were started with this mark in their environment. Raises OSError."""
    return all_marked().get(mark, [])


def all_marked() -> dict[str, list[int]]:
    """Return the living processes that were started with a mark in their environment, by mark. Raises OSError."""
    found: dict[str, list[int]] = {}
    for pid in pids():
        for mark in _marks(pid):
            found.setdefault(mark, []).append(pid)
    return found


def kill_marked(mark: str) -> bool:
    """Kill every marked process, and what it forks meanwhile; say whether none is left."""
    for _ in range(PASSES):
        found = marked(mark)
        if not found:
            return True
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return False


def command(pid: int) -> str:
    """Return a process's command line, shortened; empty when it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    except OSError:
        return ""


def user(name: str) -> Owner | None:
    """Return a user of this machine."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Owner(uid=entry.pw_uid, gid=entry.pw_gid, name=entry.pw_name)


def _marks(pid: int) -> list[str]:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except (OSError, ProcessLookupError):
        return []
    found = [entry for entry in environment.split(b"\0") if entry.startswith(_MARKED)]
    return (
        [entry.removeprefix(_MARKED).decode(errors="replace") for entry in found]
        if found and start_time(pid) is not None
        else []
    )
