"""A stack whose every part can be struck; what struck it and what came of it is shown as it goes."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from deploy.embedded import ports
from deploy.embedded.servers import SERVERS
from deploy.embedded.state import StateFolder
from schemas.catalog import SERVICES
from tests.support import disks, linked_up, links, victims
from tests.support.disks import Disk
from tests.support.links import Links
from tests.support.strikes import Scene
from tests.support.victims import Stack

FLEET = """
apiVersion: triplane/v1
kind: GpuClass
metadata: {name: h100}
spec: {match: {model: NVIDIA H100 80GB HBM3}, pricePerHour: "2.50 USD"}
---
apiVersion: triplane/v1
kind: GpuClass
metadata: {name: a100}
spec: {match: {model: NVIDIA A100 40GB}, pricePerHour: "1.50 USD"}
---
apiVersion: triplane/v1
kind: Cluster
metadata: {name: chaos}
spec:
  backend: local
  nodes:
    - {name: n1, devices: 4, model: NVIDIA H100 80GB HBM3}
    - {name: n2, devices: 4, model: NVIDIA H100 80GB HBM3}
    - {name: n3, devices: 4, model: NVIDIA H100 80GB HBM3}
    - {name: m1, devices: 80, model: NVIDIA A100 40GB}
    - {name: m2, devices: 80, model: NVIDIA A100 40GB}
"""
AGENTS = [f"agent-chaos-{node}" for node in ("n1", "n2", "n3", "m1", "m2")]
REPLICAS = {"placement": 4}
PLACEMENTS = ["placement", "placement-2", "placement-3", "placement-4"]
OTHERS = [name for name in SERVICES if name not in ("agent", "placement")]
DISK_MIB = 4_096  # what a long run writes
# what is silent for a while has to come back by itself; and a busy machine answers late
PATIENT = {
    "TRIPLANE_PLACEMENT_START_DEADLINE_SECONDS": "600",
    "TRIPLANE_PLACEMENT_NODE_LOST_AFTER_SECONDS": "600",
    "TRIPLANE_PLACEMENT_CLUSTER_LOST_AFTER_SECONDS": "600",
    "TRIPLANE_HEALTH_LOST_SECONDS": "600",
    "TRIPLANE_AGENT_CLAIM_SECONDS": "5",
    "TRIPLANE_AGENT_LOCK_WAIT_SECONDS": "300",  # an old launch lets go once the ledger answers
    "TRIPLANE_AGENT_CLEAR_WAIT_SECONDS": "30",
    "TRIPLANE_DISPATCH_CALL_SECONDS": "5",
    "TRIPLANE_PLACEMENT_SEAL_CALL_SECONDS": "5",
}


@dataclass(frozen=True)
class Field:
    """A stack, and what it can be struck with."""

    stack: Stack
    links: Links
    disk: Disk | None

    @property
    def scene(self) -> Scene:
        """Whom there is to strike."""
        return Scene(OTHERS, PLACEMENTS, AGENTS, has_disk=self.disk is not None)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk | None]:
    """A small disk; None for who cannot mount one."""
    if os.geteuid() != 0:
        yield None
        return
    with disks.disk(tmp_path, DISK_MIB) as small:
        yield small


@pytest.fixture
def chaos(request: pytest.FixtureRequest, disk: Disk | None) -> Iterator[Field]:
    """The stack, its lines and its disk; state and logs are kept when the test has failed."""
    failed = request.session.testsfailed
    with links.opened() as lines:
        prepared = partial(_lay, lines)
        place = disk.path if disk else None
        with victims.stack(FLEET, PATIENT, place, program=linked_up.program, prepared=prepared) as stack:
            yield Field(stack, lines, disk)
    if request.session.testsfailed != failed:
        kept = shutil.copytree(stack.folder.logs, stack.work_log.folder.parent / "logs")
        print(f"\nLogs are in {kept}, what jobs noted beside them.", flush=True)  # noqa: T201
        return
    victims.remove(stack)


def _lay(lines: Links, folder: StateFolder) -> Mapping[str, str]:
    laid = lines.lay([*OTHERS, *PLACEMENTS, *AGENTS], ports.settle(folder, SERVERS, {}))
    return {linked_up.LINKS: json.dumps(laid), linked_up.REPLICAS: json.dumps(REPLICAS)}
