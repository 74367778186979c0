"""The launch guard: locks first, then the question, then the run, then its record."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
import time
from pathlib import Path

from services.agent.shim.files import read, timestamp, write
from services.agent.shim.life import Life, asked_stop
from services.agent.shim.signals import Signals
from services.agent.shim.tree import PR_SET_CHILD_SUBREAPER, SHIM_SCORE, control, drop_group, spare

TYPE_CHECKING = False  # typing costs 5 ms at every start
if TYPE_CHECKING:
    from typing import Any

EXIT_RECORDED = 0
EXIT_REFUSED = 75  # EX_TEMPFAIL: nothing was started; exit.json says why
EXIT_DOUBLED = 76  # another shim has this run, or had it

ANSWER_SECONDS = 20.0  # longer than the agent needs to look and to ask the ledger once; then the question is put again
RECORD_TRIES = 30  # a full disk may get room again; after as many seconds the end goes unrecorded


class RefusedError(Exception):
    """Nothing may start. ``reason`` is a ``schemas.reasons.Reason`` as JSON."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code, message)
        self.reason: dict[str, Any] = {"layer": "node", "code": code, "message": message[:1000]}


def main(folder: str) -> int:
    """Live one run; return the shim's own exit code."""
    os.chdir(folder)
    signals = Signals()
    control(PR_SET_CHILD_SUBREAPER)
    spare(SHIM_SCORE)
    if not alone(signals) or begun():
        return EXIT_DOUBLED
    order = read("order.json")
    identity = identify(order)
    write("shim.pid", identity)
    return live(order, identity, signals)


def alone(signals: Signals) -> bool:
    """Lock the run for this shim; an agent that looks holds the lock for a moment."""
    guard = os.open("run.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(10):
        if locked(guard):
            return True
        signals.wait(0.05)
    return False


def begun() -> bool:
    """Say whether an earlier shim of this run, gone by now, came as far as a start or a record."""
    return Path("started.json").exists() or Path("exit.json").exists()


def live(order: dict[str, Any], identity: dict[str, Any], signals: Signals) -> int:
    """Lock, ask, run, record."""
    life = Life(order, signals)
    try:
        take_locks(order, signals)
        leave = ask(order, identity, signals)
    except RefusedError as refusal:
        drop_group(order["cgroup"])
        keep_record(end_record(identity, life, None, refusal))
        return EXIT_REFUSED
    started_at = timestamp()
    write("started.json", {"instance": identity["instance"], "started_at": started_at})
    with leave:
        tell(leave, {"started": identity["instance"]})
    life.live(witnesses(order))
    drop_group(order["cgroup"])
    failure = RefusedError("StartFailed", life.failure) if life.failure else None
    keep_record(end_record(identity, life, started_at, failure))
    return EXIT_RECORDED


def end_record(
    identity: dict[str, Any], life: Life, started_at: str | None, refusal: RefusedError | None
) -> dict[str, Any]:
    """Return the exit record, in the shape of ``schemas.workload.ExitRecord``."""
    return {
        "instance": identity["instance"],
        "ranks": life.record(),
        "timed_out": life.timed_out,
        "stopped": life.stopped,
        "cancelled_by": life.cancelled_by,
        "refused": refusal.reason if refusal else None,
        "started_at": started_at,
        "ended_at": timestamp(),
    }


def identify(order: dict[str, Any]) -> dict[str, Any]:
    """Return who this shim is: a pid alone may be someone else's tomorrow."""
    start = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return {"pid": os.getpid(), "start": start, "boot": order["boot"], "instance": os.urandom(16).hex()}


def take_locks(order: dict[str, Any], signals: Signals) -> None:
    """Lock every device, in id order, until this process ends. Raises RefusedError when one stays taken."""
    deadline = time.monotonic() + order["lock_wait_seconds"]
    for device in sorted(order["devices"]):
        fd = os.open(Path(order["device_folder"], device), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while not locked(fd):
            if signals.stop:
                raise stopped("while it waited for the device locks")
            if time.monotonic() >= deadline:
                raise RefusedError("DeviceNotClear", f"the lock of {device} stayed taken")
            signals.wait(0.05)


def locked(fd: int) -> bool:
    """Try to take the lock; the process keeps it as long as it lives."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def ask(order: dict[str, Any], identity: dict[str, Any], signals: Signals) -> socket.socket:
    """Ask the agent for leave until it answers; return the connection the leave came by. Raises RefusedError."""
    deadline, pause = time.monotonic() + order["start_seconds"], 0.05
    while not signals.stop and time.monotonic() < deadline:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        answer = ask_once(connection, order, identity, signals)
        if answer.get("start") == identity["instance"]:
            return connection
        connection.close()
        if "refused" in answer:
            raise refusal_of(answer["refused"])
        signals.wait(pause)
        pause = min(2.0, pause * 2)
    if signals.stop:
        raise stopped("before it was started")
    raise RefusedError("AgentUnreachable", "no answer from the node's agent before the start deadline")


def ask_once(
    connection: socket.socket, order: dict[str, Any], identity: dict[str, Any], signals: Signals
) -> dict[str, Any]:
    """Return the agent's answer, or nothing when there is none: an error is never a yes."""
    try:
        connect(connection, order["agent_socket"])
        tell(connection, {"ask": order["run"], "epoch": order["epoch"], "instance": identity["instance"]})
        return json.loads(hear(connection, signals)) or {}
    except (OSError, ValueError):
        return {}


def connect(connection: socket.socket, path: str) -> None:
    """Connect to a socket however long its path is: the kernel takes 107 bytes, so its folder goes by number."""
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{Path(path).name}")
    finally:
        os.close(folder)


def tell(connection: socket.socket, message: dict[str, Any]) -> None:
    """Say one line; a listener who is gone is no error, it will look by itself."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def hear(connection: socket.socket, signals: Signals) -> bytes:
    """Return one line, or what came of it before the end, a stop or the time allowed."""
    deadline, line = time.monotonic() + ANSWER_SECONDS, b""
    while not line.endswith(b"\n") and not signals.stop and time.monotonic() < deadline:
        if not signals.wait(deadline - time.monotonic(), [connection.fileno()]):
            continue
        data = connection.recv(4096)
        if not data:
            break
        line += data
    return line


def stopped(when: str) -> RefusedError:
    """Return what a stop makes of a run that has not started, and of the cancel of a person on the node."""
    who = asked_stop().get("cancelled_by")
    code, what = ("BackendCancelled", f"cancelled by {who}") if who else ("Stopped", "stopped")
    return RefusedError(code, f"{what} {when}")


def refusal_of(reason: dict[str, Any]) -> RefusedError:
    """Return the agent's refusal with its whole reason."""
    refusal = RefusedError(reason["code"])
    refusal.reason = reason
    return refusal


def witnesses(order: dict[str, Any]) -> list[int]:
    """Return open files of the devices for the user's processes: who inherits one is seen by any later look."""
    return [
        os.open(Path(order["device_folder"], device), os.O_RDONLY | os.O_CLOEXEC) for device in sorted(order["devices"])
    ]


def keep_record(record: dict[str, Any]) -> None:
    """Write the exit record; wait for room on the disk if need be."""
    for _ in range(RECORD_TRIES):
        try:
            write("exit.json", record)
        except OSError as error:
            sys.stderr.write(f"exit.json: {error}\n")
            time.sleep(1)
        else:
            return
