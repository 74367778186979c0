"""A service as a process: killed at any moment it loses and doubles nothing; it ends cleanly or says that it broke."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from nats.aio.msg import Msg

from schemas.codec import decode
from tests.support.eventually import eventually
from tests.support.shell_services import QUEUED, submitted
from tests.support.shell_worlds import RealWorld

NAMES = [f"job-{number:04}" for number in range(1_000)]


@asynccontextmanager
async def process(real: RealWorld, **environment: str) -> AsyncIterator[Process]:
    """Run admission as a process; kill it at the end if it still runs."""
    told = real.surroundings["admission"]
    secrets = {"nats_password": told.nats_password, "postgres_dsn": told.postgres_dsn}
    values = {name: value.get_secret_value() for name, value in secrets.items() if value}
    values |= {"nats_url": told.nats_url, "nats_user": told.nats_user or "", **environment}
    variables = {f"TRIPLANE_{name.upper()}": value for name, value in values.items()}
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.shell_process", stderr=PIPE, env={**os.environ, **variables}
    )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            started.kill()
        await started.communicate()


async def test_a_process_that_is_killed_again_and_again_takes_effect_once(real: RealWorld) -> None:
    async with real.running(real.service("admission")):
        pass  # makes the tables and streams
    answers: set[str] = set()
    await real.operator.subscribe(f"{QUEUED}.>", cb=partial(_note, answers))
    for start in range(0, len(NAMES), 250):
        await asyncio.gather(*(real.say(submitted(name)) for name in NAMES[start : start + 250]))
    for share in (0.1, 0.4, 0.7):
        async with process(real):
            await eventually(partial(_effects, real, int(share * len(NAMES))), seconds=30)
    async with process(real):
        await eventually(lambda: _effects(real, len(NAMES)), seconds=60)
        await eventually(lambda: sorted(answers) == NAMES, seconds=60)
    assert sorted(await real.effects("admission")) == NAMES
    assert await real.stored("DEAD") == []


async def test_a_process_ends_cleanly_when_it_is_told_to(real: RealWorld) -> None:
    async with process(real) as running:
        await _read_until(running, "started")
        running.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.wait(), 30) == 0


async def test_a_process_that_shows_a_defect_ends_with_code_1_and_says_why(real: RealWorld) -> None:
    async with process(real, test_breaks_on="bad") as running:
        await _read_until(running, "started")
        await real.say(submitted("one"), submitted("bad"))
        said = await _read_until(running, "the service ends")
        assert await asyncio.wait_for(running.wait(), 30) == 1
    assert "AssertionError: a defect" in said
    assert await real.effects("admission") == ["one"]


async def test_a_process_tells_its_health_over_http(real: RealWorld) -> None:
    async with process(real) as running:
        opened = await _read_until(running, "health endpoints are open")
        await _read_until(running, "started")
        port = re.findall(r'"port":(\d+)', opened)[0]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"ready\n")
        writer.close()


async def _effects(real: RealWorld, count: int) -> bool:
    assert len(await real.effects("admission")) >= count
    return True


async def _note(answers: set[str], message: Msg) -> None:
    answers.add(decode(message.data).key)


async def _read_until(running: Process, text: str) -> str:
    assert running.stderr is not None
    said = ""
    async with asyncio.timeout(30):
        while text not in said:
            line = await running.stderr.readline()
            assert line, said
            said += line.decode()
    return said
