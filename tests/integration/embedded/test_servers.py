"""The three servers of a stack, run as a person runs them."""

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import asyncpg
import pytest

from deploy.embedded import children, credentials, ports
from deploy.embedded.credentials import OPERATOR
from deploy.embedded.failures import StackError
from deploy.embedded.keeper import Keeper
from deploy.embedded.servers.identity import Identity, Kind, own_identity
from deploy.embedded.servers.postgres import PostgresServer
from deploy.embedded.state import StateFolder, open_state
from tests.support.eventually import eventually
from tests.support.stacks import NOWHERE, an_ordinary_user, components, crash, embedded, is_running, stack_pid

SERVERS = ["nats", "postgres", "redis"]
UP = ("up", "--servers-only", "--detach", "--state")


async def test_data_and_ports_survive_a_restart(state: Path) -> None:
    assert (await embedded(*UP, state)).code == 0
    before = ports.saved(StateFolder(state))
    await execute(state, "CREATE TABLE kept AS SELECT 42 AS answer")
    assert (await embedded("down", "--state", state)).said == "Stopped: stack.\n"
    assert (await embedded(*UP, state)).code == 0
    assert await execute(state, "SELECT answer FROM kept") == 42
    assert ports.saved(StateFolder(state)) == before


async def test_a_killed_server_comes_back_on_its_port(state: Path) -> None:
    await embedded(*UP, state)
    before = await components(state)
    for server in before.values():
        crash(int(str(server["pid"])))

    async def all_back() -> bool:
        now = await components(state)
        assert [now[name]["state"] for name in SERVERS] == ["ready"] * 3
        return not {now[name]["pid"] for name in SERVERS} & {before[name]["pid"] for name in SERVERS}

    await eventually(all_back, seconds=30)
    told = [json.loads(line) for line in StateFolder(state).log_file("supervisor").read_text().splitlines()]
    assert {line["server"] for line in told if line["text"] == "a server died"} == set(SERVERS)
    assert {name: each["port"] for name, each in (await components(state)).items()} == ports.saved(StateFolder(state))


async def test_a_directory_may_have_any_name(state: Path) -> None:
    odd = state.with_name('my "own" städte & Co')
    try:
        assert (await embedded(*UP, odd)).code == 0
        assert {name: each["state"] for name, each in (await components(odd)).items()} == dict.fromkeys(
            SERVERS, "ready"
        )
    finally:
        assert (await embedded("down", "--state", odd)).said == "Stopped: stack.\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_the_command_stops_everything(state: Path, number: signal.Signals) -> None:
    words = (sys.executable, "-m", "cli.main", "up", "--servers-only", "--state", str(state))
    stack = await asyncio.create_subprocess_exec(*words, env={**os.environ, "XDG_CONFIG_HOME": NOWHERE})
    await eventually((state / "ready").exists, seconds=60)
    servers = [int(str(each["pid"])) for each in (await components(state)).values()]
    stack.send_signal(number)
    assert (await stack.wait(), [is_running(pid) for pid in servers]) == (0, [False] * 3)


async def test_a_second_up_on_the_same_directory_is_refused(state: Path) -> None:
    await embedded(*UP, state)
    first = stack_pid(state)
    second = await embedded("up", "--servers-only", "--state", state)
    assert (second.code, second.said) == (
        6,
        f"A stack is already up on {state} (process {first}). Stop it with `triplane down`.\n",
    )
    assert (await embedded(*UP, state)).code == 6
    assert is_running(first)


async def test_a_directory_of_a_newer_format_is_refused(state: Path) -> None:
    state.mkdir()
    (state / "format").write_text("2\n")
    outcome = await embedded("up", "--servers-only", "--state", state)
    assert outcome.code == 4
    assert f"The state directory {state} has format 2; this release reads up to 1." in outcome.said


async def test_a_directory_with_something_else_in_it_is_refused(state: Path) -> None:
    state.mkdir()
    state.chmod(0o755)
    (state / "thesis.tex").write_text("work of years")
    outcome = await embedded("up", "--servers-only", "--state", state)
    assert (outcome.code, [path.name for path in state.iterdir()]) == (4, ["thesis.tex"])
    assert stat.S_IMODE(state.stat().st_mode) == 0o755  # whatever it is, others went on reading it


async def test_nobody_else_can_read_the_directory_or_a_secret(state: Path) -> None:
    await embedded(*UP, state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    secret = ["credentials.json", "nats/nats.conf", "redis/redis.conf", "postgres/data/pg_hba.conf", "logs/nats.log"]
    assert {name: stat.S_IMODE((state / name).stat().st_mode) for name in secret} == dict.fromkeys(secret, 0o600)


async def test_what_a_killed_stack_left_running_is_ended_by_the_next_one(state: Path, tmp_path: Path) -> None:
    await embedded(*UP, state, environment={"PATH": without_setpriv(tmp_path)})
    left = [int(str(each["pid"])) for each in (await components(state)).values()]
    crash(stack_pid(state))
    assert [is_running(pid) for pid in left] == [True] * 3
    assert (await embedded("down", "--state", state)).said == "Stopped: nats, postgres, redis.\n"
    assert [is_running(pid) for pid in left] == [False] * 3


async def test_servers_end_with_a_killed_stack_where_the_kernel_can_see_to_it(state: Path) -> None:
    await embedded(*UP, state)
    left = [int(str(each["pid"])) for each in (await components(state)).values()]
    crash(stack_pid(state))
    await eventually(lambda: not any(is_running(pid) for pid in left))
    assert (await embedded(*UP, state)).code == 0


def test_a_process_that_got_the_pid_of_a_dead_server_is_left_alone(state: Path) -> None:
    folder = open_state(state)
    with subprocess.Popen(["sleep", "60"]) as innocent:
        ticks = children.start_ticks(innocent.pid)
        assert ticks is not None
        old = children.Record(innocent.pid, ticks - 1, 15, children.boot_id())
        folder.record_file("nats").write_text(json.dumps(asdict(old)))
        assert asyncio.run(embedded("down", "--state", state)).said == "Nothing was up.\n"
        assert is_running(innocent.pid)
        innocent.kill()


async def test_a_fixed_port_that_is_taken_is_named(state: Path) -> None:
    await embedded(*UP, state)
    taken = ports.saved(StateFolder(state))["nats"]
    outcome = await embedded("up", "--servers-only", "--port-nats", taken, "--state", state.with_name("other"))
    assert (outcome.code, outcome.said) == (1, f"Port {taken} for nats is taken. Name another with --port-nats.\n")


async def test_a_service_without_the_password_is_turned_away(state: Path) -> None:
    await embedded(*UP, state)
    port = ports.saved(StateFolder(state))["postgres"]
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(host="127.0.0.1", port=port, user=OPERATOR, password="guess", database="triplane")


@pytest.mark.usefixtures("needs_root")
async def test_an_ordinary_user_can_run_it(state: Path) -> None:
    user = an_ordinary_user()
    shutil.chown(state.parent, *((65534, 65534) if "setpriv" in user else (0, 0)))
    outcome = await embedded(*UP, state, prefix=user, environment={"HOME": str(state.parent)})
    assert outcome.code == 0, outcome.said
    assert [each["state"] for each in (await components(state, user)).values()] == ["ready"] * 3
    assert (await embedded("down", "--state", state, prefix=user)).code == 0


@pytest.mark.usefixtures("needs_root")
async def test_root_can_run_it_where_user_namespaces_are_refused(state: Path) -> None:
    folder = open_state(state)
    secret = credentials.kept_or_new(folder)
    chosen = ports.settle(folder, ["postgres"], {})
    server = PostgresServer(folder, chosen["postgres"], secret, Identity(Kind.NOBODY))
    keeper = Keeper(folder, server)
    await keeper.start()
    record = children.read_record(folder, "postgres")
    assert record is not None
    owner = Path(f"/proc/{record.pid}").stat().st_uid
    await keeper.stop()
    assert (owner, stat.S_IMODE(state.stat().st_mode)) == (65534, 0o711)


async def test_a_server_that_dies_while_it_is_furnished_is_one_to_start_again(state: Path) -> None:
    folder = open_state(state)
    secret, chosen = credentials.kept_or_new(folder), ports.settle(folder, ["postgres"], {})
    server = PostgresServer(folder, chosen["postgres"], secret, own_identity())
    keeper = Keeper(folder, server)
    await keeper.start()
    dying = asyncio.ensure_future(server.furnish())
    keeper.kill()
    with pytest.raises(StackError, match="postgres cannot be furnished"):
        await dying
    await keeper.start()
    assert await server.answers()
    await keeper.stop()


async def test_a_server_that_cannot_start_is_named_with_the_end_of_its_log(state: Path) -> None:
    await embedded(*UP, state)
    await embedded("down", "--state", state)
    shutil.rmtree(state / "nats")
    (state / "nats").write_text("in the way")
    outcome = await embedded("up", "--servers-only", "--state", state)
    assert outcome.code == 1
    assert "nats" in outcome.said


async def execute(state: Path, statement: str) -> object:
    folder = StateFolder(state)
    secret = credentials.load(folder)
    assert secret is not None
    connection = await PostgresServer(folder, ports.saved(folder)["postgres"], secret, Identity(Kind.SELF)).connect()
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def without_setpriv(folder: Path) -> str:
    (folder / "unshare").symlink_to(shutil.which("unshare") or "/nowhere")
    return str(folder)
