"""A stack of the benchmark's own, and where its processor time and its memory go."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

NODES, DEVICES = 64, 8
HEALTH = "-health"
TOGETHER = "services"  # all of them, in one process
TURNS = "triplane_turn_messages"
SPENT, ALL_SPENT = "triplane_cpu_seconds_total", "process_cpu_seconds_total"
REST = "bus and the rest"
Hop = tuple[str, str]
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

    def memory_mib(self) -> dict[str, float]:
        """Return the memory of every component, children included; a page that several share is shared out (PSS)."""
        of_others = {name: {*self.pids.values()} - {pid} for name, pid in self.pids.items()}
        return {
            name: sum(_pss_mib(each) for each in _family(pid, without=of_others[name]))
            for name, pid in self.pids.items()
        }

    def spent(self) -> dict[Hop, float]:
        """Return the processor seconds so far of each hop of each service, as the services count them."""
        return {hop: seconds for name in self._services() for hop, seconds in _hops(name, self._samples(name)).items()}

    def turns(self) -> dict[str, tuple[float, float]]:
        """Return how many messages each durable has taken so far, and in how many turns."""
        counted: dict[str, tuple[float, float]] = {}
        for sample in (sample for name in self._services() for sample in self._samples(name)):
            durable = sample.labels.get("durable", "")
            messages, turns = counted.get(durable, (0.0, 0.0))
            if sample.name == f"{TURNS}_sum":
                counted[durable] = (sample.value, turns)
            elif sample.name == f"{TURNS}_count":
                counted[durable] = (messages, sample.value)
        return counted

    def _services(self) -> list[str]:
        return [name.removesuffix(HEALTH) for name in self.ports if name.endswith(HEALTH)]

    def _samples(self, service: str) -> list[Sample]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[service + HEALTH]}/metrics", timeout=5) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return [sample for family in families for sample in family.samples]


@contextmanager
def standing(*, apart: bool = True) -> Iterator[Stack]:
    """Have the stack up inside, each service a process or all in one, and nothing of it afterwards."""
    above = Path(tempfile.mkdtemp(prefix="triplane-bench-"))
    state, fleet = above / "state", above / "fleet.yaml"
    fleet.write_text(_fleet())
    try:
        how = ["--processes"] if apart else []
        _embedded(above, "up", "--detach", *how, "--fleet", str(fleet), "--state", str(state))
        status = json.loads(_embedded(above, "status", "--state", str(state), "-o", "json"))
        pids = {row["name"]: row["pid"] for row in status["components"]}
        yield Stack(state, {TOGETHER if pid == status["pid"] else name: pid for name, pid in pids.items()})
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


def _family(pid: int, without: Collection[int] = ()) -> list[psutil.Process]:
    """Return a process and what it has started, but those and what they have started."""
    try:
        first = psutil.Process(pid)
        return [first, *(one for child in first.children() if child.pid not in without for one in _family(child.pid))]
    except psutil.NoSuchProcess:
        return []


def _pss_mib(process: psutil.Process) -> float:
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _hops(service: str, samples: Collection[Sample]) -> dict[Hop, float]:
    hops = {(service, sample.labels["hop"]): sample.value for sample in samples if sample.name == SPENT}
    total = sum(sample.value for sample in samples if sample.name == ALL_SPENT)
    return {**hops, (service, REST): total - sum(hops.values())}


def _seconds(pid: int) -> float:
    total = 0.0
    for each in _family(pid):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total + sum(psutil.Process(pid).cpu_times()[2:4])
