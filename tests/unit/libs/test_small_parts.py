"""Clock, configuration, logs, loops, subjects and the health endpoints."""

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from libs import log as logs
from libs.clock import ManualClock, SystemClock
from libs.config import Infrastructure
from libs.errors import TransientError
from libs.log import get_logger
from libs.probes import Probes
from libs.work import Wake, repeat
from tests.support.eventually import eventually


def test_a_manual_clock_moves_only_when_it_is_told() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    clock.advance(90)
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC), 90.0)


def test_the_system_clock_is_aware_and_in_utc() -> None:
    assert SystemClock().now().utcoffset() == timedelta(0)


def test_surroundings_come_from_the_environment_and_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPLANE_NATS_URL", "nats://a:1,nats://b:2")
    monkeypatch.setenv("TRIPLANE_POSTGRES_DSN", "postgresql://me:hush@db/triplane")
    monkeypatch.setenv("TRIPLANE_NATS_USER", "")
    surroundings = Infrastructure()
    assert (surroundings.nats_url, surroundings.nats_user) == ("nats://a:1,nats://b:2", None)
    assert surroundings.postgres_dsn == SecretStr("postgresql://me:hush@db/triplane")
    assert "hush" not in repr(surroundings)


@pytest.fixture
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.mark.usefixtures("_restored_logging")
def test_a_log_line_is_one_json_object_with_bounded_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("INFO", "json", "placement")
    get_logger("x").info("committed", job="j", n=2, secret=SecretStr("hush"), long="a" * 9_000)
    get_logger("x").debug("not shown")
    line = json.loads(capsys.readouterr().err)
    assert len(line.pop("long")) == 2_001
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "level": "INFO",
        "service": "placement",
        "logger": "x",
        "text": "committed",
        "job": "j",
        "n": 2,
        "secret": "**********",
    }


@pytest.mark.usefixtures("_restored_logging")
def test_a_log_line_may_be_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("INFO", "text", "placement")
    get_logger("x").warning("it failed", error=ValueError("why"), n=2)
    head, *trace = capsys.readouterr().err.strip().splitlines()
    assert head.endswith("WARNING placement it failed n=2")
    assert trace == ["ValueError: why"]


async def test_a_loop_runs_at_the_start_and_when_it_is_woken() -> None:
    rounds: list[int] = []

    async def work() -> None:
        rounds.append(1)

    wake = Wake()
    task = asyncio.ensure_future(repeat("test", work, every=60, wake=wake))
    await eventually(lambda: len(rounds) == 1)
    wake()
    await eventually(lambda: len(rounds) == 2)
    task.cancel()


async def test_a_wake_up_during_a_round_is_not_lost() -> None:
    rounds: list[int] = []
    wake = Wake()

    async def work() -> None:
        rounds.append(1)
        if len(rounds) == 1:
            wake.wake()

    task = asyncio.ensure_future(repeat("test", work, every=60, wake=wake))
    await eventually(lambda: len(rounds) == 2)
    task.cancel()


async def test_a_loop_tries_the_transient_again_and_raises_the_rest() -> None:
    errors: list[Exception] = [TransientError("1"), TransientError("2"), ZeroDivisionError()]

    async def work() -> None:
        raise errors.pop(0)

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(repeat("test", work, every=60, wake=Wake()), 30)


async def test_health_endpoints_tell_life_and_readiness_apart() -> None:
    missing: list[str] = ["NATS is away"]
    probes = Probes(lambda: missing)
    await probes.open("127.0.0.1", 0)
    assert await _get(probes.port, "/healthz") == ("200 OK", "alive")
    assert await _get(probes.port, "/readyz") == ("503 Service Unavailable", "NATS is away")
    missing.clear()
    assert await _get(probes.port, "/readyz") == ("200 OK", "ready")
    assert (await _get(probes.port, "/else"))[0] == "404 Not Found"
    assert await _ask(probes.port, b"x" * 100_000) == b""
    await probes.close()


async def _get(port: int, path: str) -> tuple[str, str]:
    head, _, body = (await _ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())).partition(b"\r\n\r\n")
    return head.splitlines()[0].decode().partition(" ")[2], body.decode().strip()


async def _ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
