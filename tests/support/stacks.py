"""Whole stacks in processes of their own, started and stopped the way a person does it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS = 90
NOWHERE = "/proc/nowhere"  # a person's own stack stays the newest


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    said: str


async def embedded(
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    seconds: float = READY_SECONDS,
) -> Outcome:
    """Run `python -m deploy.embedded` to its end."""
    process = await asyncio.create_subprocess_exec(
        *prefix,
        sys.executable,
        "-m",
        "deploy.embedded",
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "XDG_CONFIG_HOME": NOWHERE, **(environment or {})},
    )
    reading = asyncio.create_task(process.communicate())
    await asyncio.wait({reading}, timeout=seconds)
    is_late = not reading.done()
    if is_late:
        process.terminate()
    said, _ = await reading
    assert not is_late, f"{arguments} took longer than {seconds} s:\n{said.decode()}"
    return Outcome(process.returncode or 0, said.decode())


async def components(state: Path, prefix: Sequence[str] = ()) -> dict[str, dict[str, object]]:
    """Return what `status -o json` says, by component."""
    outcome = await embedded("status", "--state", state, "-o", "json", prefix=prefix)
    listed = json.loads(outcome.said[: outcome.said.rindex("}") + 1])["components"]
    return {each["name"]: each for each in listed}


def stack_pid(state: Path) -> int:
    """Return the process that holds the state directory."""
    return int((state / "lock").read_text())


def crash(pid: int) -> None:
    """End a process as a crash would."""
    os.kill(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Return whether the process is there and no zombie."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(done.stdout.strip()) and not done.stdout.startswith("Z")


def an_ordinary_user() -> tuple[str, ...]:
    """Become nobody; where our Python is closed to others (below /root), look like nobody in a user namespace."""
    real = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    works = subprocess.run([*real, sys.executable, "-c", again], capture_output=True, check=False).returncode == 0
    return real if works else ("unshare", "--user", "--map-user=65534", "--map-group=65534")
