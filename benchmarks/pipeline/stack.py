"""A stack of the benchmark's own: every service a process, and where its processor time goes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

NODES, DEVICES = 64, 8
QUEUE = """
apiVersion: triplane/v1
kind: Queue
metadata: {name: main, tenant: bench}
spec: {quotas: [{class: virtual, nominal: 1000000}]}
"""


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack that is up: its processes by component and the secrets of who may look at everything."""

    root: Path
    pids: Mapping[str, int]

    @property
    def secrets(self) -> dict[str, dict[str, str] | str]:
        """Users and passwords, as the stack keeps them."""
        loaded: dict[str, dict[str, str] | str] = json.loads((self.root / "credentials.json").read_text())
        return loaded

    @property
    def ports(self) -> dict[str, int]:
        """Where everything listens."""
        loaded: dict[str, int] = json.loads((self.root / "ports.json").read_text())
        return loaded

    def processor_seconds(self) -> dict[str, float]:
        """Return user and system seconds of every component so far, children included."""
        return {name: _seconds(pid) for name, pid in self.pids.items()}

    def resident_mib(self) -> dict[str, float]:
        """Return the resident memory of every component, children included (shared pages counted once a process)."""
        return {name: sum(each.memory_info().rss for each in _family(pid)) / 2**20 for name, pid in self.pids.items()}


@contextmanager
def standing() -> Iterator[Stack]:
    """Have the stack up inside, and nothing of it afterwards."""
    above = Path(tempfile.mkdtemp(prefix="triplane-bench-"))
    state, fleet = above / "state", above / "fleet.yaml"
    fleet.write_text(_fleet())
    try:
        _embedded(above, "up", "--detach", "--processes", "--fleet", str(fleet), "--state", str(state))
        listed = json.loads(_embedded(above, "status", "--state", str(state), "-o", "json"))["components"]
        yield Stack(state, {row["name"]: row["pid"] for row in listed})
    finally:
        _embedded(above, "down", "--state", str(state))
        shutil.rmtree(above, ignore_errors=True)


def _fleet() -> str:
    nodes = "\n".join(f"    - {{name: n{number}, devices: {DEVICES}, model: Virtual GPU}}" for number in range(NODES))
    return f"""
apiVersion: triplane/v1
kind: GpuClass
metadata: {{name: virtual}}
spec: {{match: {{model: Virtual GPU}}, pricePerHour: "1.00 USD"}}
---
apiVersion: triplane/v1
kind: Cluster
metadata: {{name: bench}}
spec:
  backend: pretend
  nodes:
{nodes}
"""


def _embedded(above: Path, *arguments: str) -> str:
    environment = {**os.environ, "XDG_CONFIG_HOME": str(above / "config")}
    command = [sys.executable, "-m", "deploy.embedded", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr or done.stdout)
    return done.stdout


def _family(pid: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _seconds(pid: int) -> float:
    total = 0.0
    for each in _family(pid):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total + sum(psutil.Process(pid).cpu_times()[2:4])
