"""The processes of a run: how one becomes the user's command, and how all of them are found and signalled."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

TYPE_CHECKING = False  # typing costs 5 ms at every start
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SHIM_SCORE, RUN_SCORE = -900, 0  # when memory runs out the run goes first: nobody records the end of a killed shim


def become(order: dict[str, Any], replica: dict[str, Any], output: int, witnesses: list[int], tell: int) -> NoReturn:
    """Turn this child into the user's command; on failure say why on ``tell`` and end."""
    try:
        os.setsid()
        join_group(order["cgroup"])
        for number, fd in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
            os.dup2(fd, number)
        for fd in witnesses:
            os.set_inheritable(fd, True)
        reset_signals()
        spare(RUN_SCORE)
        os.chdir(order["scratch"])
        drop_rights(order["owner"])
        if order["workdir"]:
            os.chdir(order["workdir"])
        os.execvpe(order["command"][0], order["command"], {**order["env"], **replica["env"]})  # noqa: S606 - its whole work
    except (OSError, ValueError) as error:
        os.write(tell, f"{order['command'][0]}: {error}".encode()[:1000])
    finally:
        os._exit(127)


def reset_signals() -> None:
    """Give the command what a shell would give it."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def drop_rights(owner: list[int] | None) -> None:
    """Become the run's user, for good: no program of the run gains rights again. None stays who it is."""
    os.umask(0o022)
    if owner:
        os.setgroups([])
        os.setresgid(owner[1], owner[1], owner[1])
        os.setresuid(owner[0], owner[0], owner[0])
    control(PR_SET_NO_NEW_PRIVS)


def control(option: int) -> None:
    """Switch a property of this process on, by prctl. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def spare(score: int) -> None:
    """Set how early the kernel kills this process when memory runs out. Only root may go below what it was."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(score), encoding="ascii")


def join_group(cgroup: str | None) -> None:
    """Enter the run's control group before anything of the user's exists."""
    if cgroup:
        Path(cgroup, "cgroup.procs").write_text("0", encoding="ascii")


def populated(cgroup: str | None) -> bool:
    """Say whether the control group, or a group below it, has a process; not without one, or when it is gone."""
    return "populated 1" in _group_file(cgroup, "cgroup.events")


def _group_file(cgroup: str | None, name: str) -> str:
    if not cgroup:
        return ""
    try:
        return Path(cgroup, name).read_text(encoding="ascii")
    except FileNotFoundError:
        return ""


def drop_group(cgroup: str | None) -> None:
    """Remove the empty control group; groups the user made inside it stay until the machine restarts."""
    if cgroup:
        with contextlib.suppress(OSError):
            Path(cgroup).rmdir()


def signal_tree(number: signal.Signals, cgroup: str | None) -> None:
    """Signal every descendant and member of the control group, parents first: none loses a child untold."""
    if number == signal.SIGKILL and cgroup:
        with contextlib.suppress(OSError):  # a kernel before 5.14: one by one
            Path(cgroup, "cgroup.kill").write_text("1", encoding="ascii")
    for pid in in_order(descendants(), map(int, _group_file(cgroup, "cgroup.procs").split())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def in_order(below: Iterable[int], members: Iterable[int]) -> list[int]:
    """Return each process once: those below in their order, then the other members of the control group."""
    return list(dict.fromkeys((*below, *members)))


def descendants() -> list[int]:
    """Return every process below this one, parents first.

    Orphans come home to it, so repeating until none is left is complete.
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            children.setdefault(parent(entry), []).append(int(entry.name))
    found: list[int] = []
    line = [os.getpid()]
    while line:
        below = children.get(line.pop(), [])
        found += below
        line += below
    return found


def parent(entry: Path) -> int:
    """Return the parent of a process; 0 when it is gone."""
    try:
        return int((entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0
