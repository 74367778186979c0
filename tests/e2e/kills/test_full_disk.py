"""The disk of a whole stack is full for a while: what was said is kept, and when there is room again work goes on."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.client.client import AsyncClient
from tests.e2e.kills.conftest import FLEET
from tests.support import disks, victims
from tests.support.batches import Batch
from tests.support.eventually import eventually
from tests.support.victims import Stack
from tests.support.work_log import doubled

pytestmark = [
    pytest.mark.kills,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]
CLASS, QUOTA, JOBS = "h100", 10, 60
JOBS_SECONDS, QUIET_SECONDS = 150, 40  # of a busy machine
FULL_SECONDS = 60  # until NATS has found it out


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with disks.disk(tmp_path, 400) as small:
        yield small.path


@pytest.fixture
def stack(disk: Path) -> Iterator[Stack]:
    with victims.stack(FLEET, disk=disk) as opened:
        yield opened
    victims.remove(opened)


async def test_every_job_reaches_its_one_right_end(stack: Stack, disk: Path) -> None:
    before = stack.pids()
    async with AsyncClient(stack.access) as admin:
        batch = Batch("disk", JOBS, admin, stack.work_log)
        handing_in = asyncio.ensure_future(batch.hand_in(CLASS, QUOTA, JOBS_SECONDS))
        await batch.reached(0.2, JOBS_SECONDS)
        _fill(disk / "filling")
        nats_log = stack.folder.log_file("nats")
        await eventually(lambda: b"no space left on device" in nats_log.read_bytes(), FULL_SECONDS, every=0.2)
        (disk / "filling").unlink()
        await handing_in
        wrong = await batch.wrong(JOBS_SECONDS)
    broken = [*await stack.breaches(batch.processes(), QUIET_SECONDS), *await stack.dead_letters(0)]
    restarted = {name for name, pid in stack.pids().items() if before[name] != pid}
    assert ([*wrong, *broken, *doubled(batch.processes())], restarted) == ([], {"nats"})


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filling, contextlib.suppress(OSError):
        while True:
            filling.write(bytes(1 << 16))
