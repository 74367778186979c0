"""Processes the stack starts: recorded by pid and start time, ended by nobody else's mistake."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from deploy.embedded.files import open_log, write_private
from deploy.embedded.state import StateFolder
from deploy.embedded.waiting import within

NOBODY = 65534
GRACE_SECONDS = 15.0  # then SIGKILL


@dataclass(frozen=True, slots=True)
class Program:
    """What to run. `environment` None is ours, `user` None is us; `stop_signal` is what it takes as a wish to end."""

    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None
    user: int | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    working_folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One process, told from a later one with the same pid by its start time (clock ticks since this boot)."""

    pid: int
    start_ticks: int
    stop_signal: int
    boot: str


@dataclass(frozen=True, slots=True)
class Child:
    """A process of ours and its record, which is kept here too: the state directory may vanish."""

    process: "subprocess.Popen[bytes]"
    record: Record

    @property
    def is_alive(self) -> bool:
        """Whether it runs now."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()


def spawn(folder: StateFolder, name: str, program: Program) -> Child:
    """Start a child in a session of its own, its output in its log, and record it.

    Where `setpriv` exists the kernel sends it `stop_signal` when this thread ends, however that happens; the record
    is for machines without, and for children that do not listen. Raises OSError.
    """
    folder.furnish()
    with open_log(folder.log_file(name)) as log:
        process = subprocess.Popen(
            [*leash(program.stop_signal), *program.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=program.working_folder or folder.root,
            env=program.environment,
            start_new_session=True,
            **user_arguments(program.user),
        )
    child = Child(process, Record(process.pid, start_ticks(process.pid) or 0, int(program.stop_signal), boot_id()))
    try:
        write_private(folder.record_file(name), json.dumps(asdict(child.record)))
    except OSError:
        child.kill()  # what is not on record might be started twice
        raise
    return child


async def end_child(child: Child, grace_seconds: float) -> None:
    """End a child of ours, and reap it."""
    await end(child.record, grace_seconds)
    child.process.wait()


async def end(record: Record, grace_seconds: float) -> None:
    """Ask the recorded process to end, wait, then kill it. Does nothing when it is gone or another has its pid."""
    for number in (record.stop_signal, signal.SIGKILL):
        if not send(record, number):
            return
        if await within(grace_seconds, lambda: not is_alive(record)):
            return


def send(record: Record, number: int) -> bool:
    """Signal exactly that process; return False when it is gone."""
    try:
        descriptor = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(record):  # looked at after the descriptor was taken: it cannot be another's
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def is_alive(record: Record) -> bool:
    """Return whether that very process still runs."""
    return start_ticks(record.pid) == record.start_ticks and record.boot == boot_id()


def read_record(folder: StateFolder, name: str) -> Record | None:
    """Return the last process recorded for a component, alive or not."""
    try:
        return Record(**json.loads(folder.record_file(name).read_text()))
    except FileNotFoundError:
        return None


def recorded(folder: StateFolder) -> dict[str, Record]:
    """Return the processes on record that are alive, by component."""
    names = sorted(path.stem for path in folder.record_file("x").parent.glob("[!.]*.json"))
    records = {name: read_record(folder, name) for name in names}
    return {name: record for name, record in records.items() if record is not None and is_alive(record)}


async def clear_leftovers(folder: StateFolder) -> list[str]:
    """End what an earlier stack left running here when it was killed; return the names. Hold the folder first."""
    left = recorded(folder)
    await asyncio.gather(*(end(record, GRACE_SECONDS) for record in left.values()))
    return sorted(left)


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it is gone or only waits to be reaped."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])


class UserArguments(TypedDict, total=False):
    """The arguments by which `subprocess` becomes another user."""

    user: int
    group: int
    extra_groups: Sequence[int]


def user_arguments(user: int | None) -> UserArguments:
    """Return how to become that user with no other group, or how to stay (None)."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def boot_id() -> str:
    """Return the kernel's name of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def leash(number: signal.Signals) -> Sequence[str]:
    """Return the prefix by which the kernel sends a child `number` when the thread that made it is gone."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", number.name.removeprefix("SIG"), "--"] if setpriv else []
