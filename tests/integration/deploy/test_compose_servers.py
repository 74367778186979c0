"""What `python -m deploy.compose` writes, on the real servers."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from deploy.compose.credentials import OPERATOR, STORED, Credentials, kept_or_new
from deploy.compose.render import files
from deploy.embedded import binaries
from libs.bus.steady import connected
from schemas.catalog import SERVICES
from tests.support.compose_stack import ComposeStack, at_work, compose_stack
from tests.support.containers import ROOT
from tests.support.eventually import eventually

BUILT = [name for name in SERVICES if (ROOT / "services" / name / "__main__.py").exists()]
OWNERS = """
SELECT string_agg(nspname || '=' || rolname, ' ' ORDER BY nspname)
  FROM pg_namespace JOIN pg_roles ON pg_roles.oid = nspowner WHERE rolname LIKE 'triplane\\_%'
"""

TABLES = """
SELECT string_agg(schemaname || '.' || tablename || '=' || tableowner, ' ' ORDER BY 1)
  FROM pg_tables WHERE tableowner LIKE 'triplane\\_%'
"""


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[ComposeStack]:
    async with compose_stack(tmp_path) as running:
        yield running


@pytest.fixture
def credentials(stack: ComposeStack) -> Credentials:
    return kept_or_new(stack.folder)


def test_nats_takes_its_configuration(tmp_path: Path) -> None:
    written = tmp_path / "nats.conf"
    written.write_text(files(kept_or_new(tmp_path))["nats.conf"])
    done = subprocess.run([binaries.nats_server(), "-t", "-c", written], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nats_would_refuse_a_broken_one(tmp_path: Path) -> None:
    told = json.loads(files(kept_or_new(tmp_path))["nats.conf"])
    told["accounts"]["TRIPLANE"]["users"][1]["permissions"]["publish"] = {"allow": ["a..b"]}
    (tmp_path / "nats.conf").write_text(json.dumps(told))
    done = subprocess.run(
        [binaries.nats_server(), "-t", "-c", tmp_path / "nats.conf"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1


async def test_every_server_lets_its_users_in_and_keeps_others_out(
    stack: ComposeStack, credentials: Credentials
) -> None:
    operator = stack.laid.credentials.postgres[OPERATOR]
    await _redis_knows_who_asks(stack, credentials)
    await _nats_knows_who_asks(stack, credentials)
    for _ in range(2):  # on the first start, and again by hand
        assert stack.psql("-f", str(stack.folder / "postgres.sql"), user=OPERATOR, password=operator) == (0, "")
    owned = " ".join(f"{service}=triplane_{service}" for service in sorted(STORED))
    assert stack.psql("-c", OWNERS, user=OPERATOR, password=operator) == (0, owned)
    _postgres_keeps_services_apart(stack, credentials)
    _a_backup_brings_all_of_it_back(stack, user=OPERATOR, password=operator)


def _a_backup_brings_all_of_it_back(stack: ComposeStack, *, user: str, password: str) -> None:
    copy, who = str(stack.folder / "triplane.dump"), {"user": user, "password": password}
    assert stack.run("pg_dump", "-d", "triplane", "-F", "custom", "-f", copy, **who) == (0, "")
    assert stack.psql("-c", "CREATE DATABASE fresh", **who) == (0, "")
    assert stack.psql("-f", str(stack.folder / "postgres.sql"), database="fresh", **who) == (0, "")
    assert stack.run("pg_restore", "-d", "fresh", "--clean", "--if-exists", copy, **who) == (0, "")
    before, after = (stack.psql("-c", TABLES, database=database, **who) for database in ("triplane", "fresh"))
    assert after == before == (0, "admission.mine=triplane_admission")


def _postgres_keeps_services_apart(stack: ComposeStack, credentials: Credentials) -> None:
    admission = {"user": "triplane_admission", "password": credentials.postgres["admission"]}
    assert stack.psql("-c", "CREATE TABLE mine (id int); SHOW search_path", **admission) == (0, "admission")
    billing = {"user": "triplane_billing", "password": credentials.postgres["billing"]}
    assert _refusal(stack, "SELECT FROM admission.mine", **billing) == "permission denied for schema admission"
    assert _refusal(stack, "CREATE TABLE public.mine (id int)", **billing) == "permission denied for schema public"
    strange = {"user": "triplane_billing", "password": credentials.postgres["admission"]}
    assert "password authentication failed" in _refusal(stack, "SELECT 1", **strange)


def _refusal(stack: ComposeStack, statement: str, *, user: str, password: str) -> str:
    code, output = stack.psql("-c", statement, user=user, password=password)
    assert code != 0, statement
    return output.partition("ERROR:  ")[2].partition("\n")[0] or output


async def _redis_knows_who_asks(stack: ComposeStack, credentials: Credentials) -> None:
    await eventually(lambda: _pings(stack))
    async with _redis(stack, "placement", credentials.redis["placement"]) as redis:
        assert await redis.set("lease", "grant")
        with pytest.raises(NoPermissionError):
            await redis.flushall()
    async with _redis(stack, "probe", "probe") as redis:
        with pytest.raises(NoPermissionError):
            await redis.get("lease")
    async with Redis(port=stack.ports["redis"]) as nobody:
        with pytest.raises(AuthenticationError):
            await nobody.ping()


async def _pings(stack: ComposeStack) -> bool:
    try:
        async with _redis(stack, "probe", "probe") as redis:
            return bool(await redis.ping())
    except OSError:
        return False


def _redis(stack: ComposeStack, user: str, password: str) -> Redis:
    return Redis(port=stack.ports["redis"], username=user, password=password)


async def _nats_knows_who_asks(stack: ComposeStack, credentials: Credentials) -> None:
    refused: list[str] = []

    async def refuse(error: Exception) -> None:
        refused.append(str(error))

    place = f"nats://127.0.0.1:{stack.ports['nats']}"
    user = await connected(
        place, user="billing", password=credentials.nats["billing"], inbox_prefix=b"_INBOX.billing", error_cb=refuse
    )
    await user.publish("workload.job.finished.v1.acme.job_1", b"{}")
    await user.flush()
    await eventually(lambda: "permissions violation for publish" in " ".join(refused).lower())
    await user.close()
    assert await _greeting_of_nobody(stack.ports["nats"]) == b"-ERR 'Authorization Violation'\r\n"


async def _greeting_of_nobody(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        assert (await reader.readline()).startswith(b"INFO ")
        writer.write(b'CONNECT {"verbose": false}\r\nPING\r\n')
        return await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.timeout(300)
async def test_every_service_comes_to_work_with_what_its_container_is_told_and_ends_well(
    stack: ComposeStack, tmp_path: Path
) -> None:
    operator = stack.laid.credentials.postgres[OPERATOR]
    assert stack.psql("-f", str(stack.folder / "postgres.sql"), user=OPERATOR, password=operator) == (0, "")
    async with at_work(stack, BUILT, tmp_path) as lives:
        for life in lives:
            await eventually(life.is_ready, seconds=90)
        assert {life.service: life.is_healthy() for life in lives} == dict.fromkeys(BUILT, True)
    logs = {life.service: life.log.read_text() for life in lives}
    assert {life.service: life.process.returncode for life in lives} == dict.fromkeys(BUILT, 0), logs
    assert [line for log in logs.values() for line in log.splitlines() if _complains(line)] == []


def _complains(line: str) -> bool:
    return "violation" in line.lower() or '"ERROR"' in line
