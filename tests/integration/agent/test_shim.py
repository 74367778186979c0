import asyncio
import fcntl
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.calls import LaunchOrder
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import RankExit
from services.agent.core.orders import MARK, Owner
from services.agent.core.runs import RunState, devices_of
from services.agent.shim.guard import EXIT_DOUBLED
from services.agent.store import groups, processes
from services.agent.store.devices import DeclaredDevices
from services.agent.store.node import Node
from tests.support import nasty_tree
from tests.support.builders_agent import an_order
from tests.support.eventually import eventually
from tests.support.shims import BOOT, ShimNode, a_shim_node, output

PYTHON = sys.executable
SLOW = {"typing", "asyncio", "subprocess", "logging", "dataclasses", "inspect", "pydantic", "schemas", "uuid", "random"}
MOST_MODULES = 120  # of which the interpreter alone needs some twenty; each costs every run about half a millisecond
NOBODY = pwd.getpwnam("nobody")
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can start a run as somebody else")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ShimNode]:
    async with a_shim_node(tmp_path) as made:
        yield made


def living(node: ShimNode, order: LaunchOrder) -> list[int]:
    return processes.marked(node.folder.mark(order.grant))


async def test_a_run_starts_after_the_leave_and_its_end_is_recorded(node: ShimNode) -> None:
    run = node.launch(an_order("sh", "-c", "echo hello; echo there >&2; exit 3"))
    record = await node.exit(run)
    instance = run.instance
    assert instance
    assert node.door.asked == [{"ask": run.order.run, "epoch": 1, "instance": instance.id}]
    assert node.door.told == [{"started": instance.id}]
    assert (record.instance, record.ranks) == (instance.id, (RankExit(rank=0, exit_code=3),))
    assert (record.timed_out, record.stopped, record.refused, record.succeeded) == (False, False, None, False)
    assert record.started_at
    assert record.started_at <= record.ended_at
    assert output(run) == "hello\nthere\n"


async def test_every_replica_gets_its_place_in_the_gang(node: ShimNode) -> None:
    script = (
        "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $CUDA_VISIBLE_DEVICES $EPOCHS"
    )
    order = an_order("sh", "-c", script, replicas=2, devices=2, first_rank=4, world_size=8, env={"EPOCHS": "3"})
    run = node.launch(order)
    assert (await node.exit(run)).succeeded
    visible = [replica["env"]["CUDA_VISIBLE_DEVICES"] for replica in run.shim_order["replicas"]]
    assert [output(run, rank) for rank in (4, 5)] == [
        f"4 8 0 2 127.0.0.1 29400 {visible[0]} 3\n",
        f"5 8 1 2 127.0.0.1 29400 {visible[1]} 3\n",
    ]
    assert sorted(",".join(visible).split(",")) == ["0", "1", "2", "3"]


async def test_a_run_gets_nothing_of_what_the_agent_s_process_has_open(node: ShimNode) -> None:
    order = an_order("sh", "-c", "for fd in /proc/$$/fd/*; do [ ${fd##*/} -le 2 ] || readlink $fd; done")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        run = node.launch(order)
        await node.exit(run)
    beyond_output = {
        Path(line).name for line in output(run).splitlines() if not line.startswith(("/dev/null", "pipe:"))
    }
    assert beyond_output == set(devices_of(order))  # the locks of its devices, which tell that it lives


async def test_what_the_platform_says_in_the_environment_cannot_be_changed_by_the_user(node: ShimNode) -> None:
    run = node.launch(an_order("sh", "-c", "echo $TRIPLANE_EPOCH $PATH", env={"TRIPLANE_EPOCH": "9", "PATH": "/bin"}))
    await node.exit(run)
    assert output(run) == "1 /bin\n"


async def test_a_refused_run_starts_nothing_and_records_the_whole_reason(node: ShimNode, tmp_path: Path) -> None:
    reason = Reason(layer=Layer.PLACEMENT, code=Code.GRANT_OVER, message="revoked", numbers={"epoch": 1})
    node.door.answer = {"refused": reason.model_dump(mode="json")}
    run = node.launch(an_order("touch", str(tmp_path / "started")))
    record = await node.exit(run)
    assert (record.refused, record.ranks, record.started_at) == (reason, (), None)
    assert not (tmp_path / "started").exists()
    assert not run.started


async def test_no_answer_is_no_leave_and_the_question_is_put_again(node: ShimNode) -> None:
    node.door.answer = {}
    run = node.launch(an_order("true"))
    await eventually(lambda: len(node.door.asked) >= 3)
    assert node.state(run) is RunState.WAITING
    node.door.answer = None
    assert (await node.exit(run)).succeeded


async def test_an_answer_for_another_start_is_dropped(node: ShimNode) -> None:
    node.door.answer = {"start": "somebody else"}
    run = node.launch(an_order("true"))
    await eventually(lambda: len(node.door.asked) >= 2)
    assert node.state(run) is RunState.WAITING
    node.door.answer = None
    assert (await node.exit(run)).succeeded


async def test_the_locks_are_taken_before_the_question_and_let_go_after_the_end(node: ShimNode) -> None:
    node.door.answer = {}
    run = node.launch(an_order("sleep", "60"))
    await eventually(lambda: node.door.asked)
    (device,) = run.shim_order["devices"]
    with (node.folder.devices / device).open() as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        node.door.answer = None
        await node.becomes(run, RunState.RUNNING)
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert processes.terminate(run.instance) if run.instance else False
        await node.exit(run)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_a_lock_that_stays_taken_is_waited_for_and_then_refused_without_a_question(node: ShimNode) -> None:
    first = node.launch(an_order("sleep", "60", job="job_a"))
    await node.becomes(first, RunState.RUNNING)
    began = time.monotonic()
    record = await node.exit(node.launch(an_order("true", job="job_b", epoch=2)))
    assert record.refused
    assert record.refused.code is Code.DEVICE_NOT_CLEAR
    assert time.monotonic() - began >= 1.0
    assert [question["ask"] for question in node.door.asked] == [first.order.run]
    assert first.instance
    processes.terminate(first.instance)
    await node.exit(first)


async def test_a_lock_that_is_let_go_in_time_lets_the_next_start(node: ShimNode, tmp_path: Path) -> None:
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    first = node.launch(an_order("sh", "-c", waits, job="job_a"))
    await node.becomes(first, RunState.RUNNING)
    second = node.launch(an_order("true", job="job_b", epoch=2))
    (tmp_path / "go").touch()
    assert (await node.exit(second)).succeeded


async def test_two_launches_of_one_run_make_one_shim(node: ShimNode, tmp_path: Path) -> None:
    run = node.launch(an_order("sh", "-c", f"echo x >> {tmp_path}/starts; sleep 0.5"))
    for _ in range(3):
        os.close(processes.start_shim(run.path))
    assert (await node.exit(run)).succeeded
    assert (tmp_path / "starts").read_text() == "x\n"
    assert len(node.door.asked) == 1


async def test_a_shim_that_comes_after_the_end_of_its_run_changes_nothing(node: ShimNode, tmp_path: Path) -> None:
    run = node.launch(an_order("sh", "-c", f"echo x >> {tmp_path}/starts; exit 3"))
    record = await node.exit(run)
    late = await asyncio.create_subprocess_exec(PYTHON, str(processes.SHIM), str(run.path))
    assert await late.wait() == EXIT_DOUBLED
    assert ((tmp_path / "starts").read_text(), run.evidence(BOOT).exit) == ("x\n", record)


async def test_a_command_that_is_not_there_fails_the_start(node: ShimNode) -> None:
    record = await node.exit(node.launch(an_order("no-such-program", "x")))
    assert record.refused
    assert (record.refused.layer, record.refused.code) == (Layer.NODE, Code.START_FAILED)
    assert record.refused.message.startswith("no-such-program: [Errno 2] No such file or directory")


async def test_a_stop_gives_grace_and_then_kills(node: ShimNode) -> None:
    run = node.launch(an_order("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done", grace_seconds=30))
    await eventually(lambda: output(run) == "deaf\n" if run.started else False)
    run.ask_stop(1)
    assert run.instance
    processes.terminate(run.instance)
    record = await node.exit(run)
    assert (record.stopped, record.ranks) == (True, (RankExit(rank=0, exit_code=None, signal=signal.SIGKILL),))


async def test_the_time_limit_ends_a_run_without_its_agent(node: ShimNode) -> None:
    run = node.launch(an_order("sleep", "60", time_limit_seconds=1))
    record = await node.exit(run)
    assert (record.timed_out, record.stopped, record.ranks) == (
        True,
        False,
        (RankExit(rank=0, exit_code=None, signal=signal.SIGTERM),),
    )


async def test_one_failed_replica_ends_the_others(node: ShimNode) -> None:
    run = node.launch(an_order("sh", "-c", '[ "$RANK" = 1 ] && exit 5; exec sleep 60', replicas=2))
    assert (await node.exit(run)).ranks == (
        RankExit(rank=0, exit_code=None, signal=signal.SIGTERM),
        RankExit(rank=1, exit_code=5),
    )


async def test_a_stop_before_the_leave_starts_nothing(node: ShimNode) -> None:
    node.door.answer = {}
    run = node.launch(an_order("true"))
    await eventually(lambda: node.door.asked)
    assert run.instance
    processes.terminate(run.instance)
    record = await node.exit(run)
    assert record.refused
    assert (record.refused.code, record.ranks) == (Code.STOPPED, ())


async def test_a_cancel_by_a_person_on_the_node_before_the_leave_says_who(node: ShimNode) -> None:
    node.door.answer = {}
    run = node.launch(an_order("true"))
    await eventually(lambda: node.door.asked)
    on_the_node = Node(node.folder, DeclaredDevices(()), None)
    assert on_the_node.cancel(run, "ada")
    record = await node.exit(run)
    assert record.refused
    assert record.refused == reason(Layer.NODE, Code.BACKEND_CANCELLED, "cancelled by ada before it was started")
    assert not on_the_node.cancel(run, "ada"), "it is over"


@pytest.mark.parametrize("grouped", [True, False])
async def test_nothing_is_left_of_a_nasty_tree(node: ShimNode, grouped: bool) -> None:
    parent = groups.find_parent("test") if grouped else None
    if grouped and parent is None:
        pytest.skip("this machine gives no control groups")
    order = an_order(PYTHON, nasty_tree.__file__, "120", grace_seconds=0)
    run = node.launch(order, cgroup=groups.make(parent, "nasty"))
    await eventually(lambda: output(run) == "ready\n" if run.started else False, seconds=30)
    await eventually(lambda: len(living(node, order)) > 100, seconds=30)
    run.ask_stop(0)
    assert run.instance
    processes.terminate(run.instance)
    assert (await node.exit(run)).stopped
    assert living(node, order) == []
    assert parent is None or not (parent / "nasty").exists()


async def test_a_refused_run_leaves_no_control_group(node: ShimNode) -> None:
    parent = groups.find_parent("test")
    if parent is None:
        pytest.skip("this machine gives no control groups")
    node.door.answer = {"refused": {"layer": "placement", "code": "GrantOver"}}
    await node.exit(node.launch(an_order("true"), cgroup=groups.make(parent, "refused")))
    assert not (parent / "refused").exists()


async def test_a_tree_that_goes_on_forking_is_ended(node: ShimNode) -> None:
    order = an_order(PYTHON, nasty_tree.__file__, "20", "forever", time_limit_seconds=1, grace_seconds=0)
    run = node.launch(order)
    assert (await node.exit(run)).timed_out
    assert living(node, order) == []


async def test_daemons_do_not_outlive_a_command_that_ended(node: ShimNode) -> None:
    order = an_order("sh", "-c", "setsid sleep 60 & exit 0")
    assert (await node.exit(node.launch(order))).succeeded
    assert living(node, order) == []


async def test_only_the_newest_output_is_kept(node: ShimNode) -> None:
    run = node.launch(an_order("sh", "-c", "seq 100000"), log_bytes=65_536)
    assert (await node.exit(run)).succeeded
    kept = output(run)
    assert kept.endswith("\n100000\n")
    assert 32_768 <= len(kept) <= 65_536 + 2 * 65_536


@AS_ROOT
async def test_a_run_of_roots_agent_belongs_to_nobody_and_can_write_its_own_folder(tmp_path: Path) -> None:
    owner = Owner(NOBODY.pw_uid, NOBODY.pw_gid, NOBODY.pw_name)
    async with a_shim_node(tmp_path, owner=owner) as node:
        run = node.launch(an_order("sh", "-c", "id -u; id -G; echo mine > file; cat file > /dev/stdout; echo $USER"))
        assert (await node.exit(run)).succeeded
        assert output(run) == f"{NOBODY.pw_uid}\n{NOBODY.pw_gid}\nmine\nnobody\n"
        assert {path.stat().st_mode & 0o077 for path in run.path.iterdir()} == {0}


def may_spare_itself() -> bool:
    """Whether this machine lets root lower its score: some containers do not."""
    told = subprocess.run(["sh", "-c", "echo -900 > /proc/self/oom_score_adj"], capture_output=True, check=False)
    return told.returncode == 0


@pytest.mark.skipif(not may_spare_itself(), reason="this user may not lower its score")
async def test_when_memory_runs_out_the_run_goes_before_its_shim(node: ShimNode) -> None:
    run = node.launch(an_order("sh", "-c", "cat /proc/$PPID/oom_score_adj /proc/self/oom_score_adj"))
    await node.exit(run)
    assert output(run).split() == ["-900", "0"]


@AS_ROOT
async def test_no_program_of_a_run_gains_rights(tmp_path: Path) -> None:
    async with a_shim_node(tmp_path, owner=Owner(NOBODY.pw_uid, NOBODY.pw_gid, "nobody")) as node:
        run = node.launch(an_order("grep", "NoNewPrivs", "/proc/self/status"))
        await node.exit(run)
        assert output(run).split() == ["NoNewPrivs:", "1"]


async def test_a_socket_with_a_long_path_is_reached(tmp_path: Path) -> None:
    long = tmp_path / ("deep" * 30)
    long.mkdir()
    with pytest.raises(OSError, match="AF_UNIX path too long"):
        async with a_shim_node(long):
            pass


async def test_a_shim_killed_under_its_run_leaves_a_run_without_a_record(node: ShimNode) -> None:
    order = an_order("sleep", "60")
    run = node.launch(order)
    await eventually(lambda: len(living(node, order)) == 1)
    assert run.instance
    os.kill(run.instance.pid, signal.SIGKILL)
    await node.becomes(run, RunState.BROKEN)
    assert len(living(node, order)) == 1
    assert processes.kill_marked(node.folder.mark(order.grant))
    await eventually(lambda: living(node, order) == [])


async def test_agents_beside_each_other_take_no_process_of_the_other_for_theirs(tmp_path: Path) -> None:
    order = an_order("sleep", "60")
    async with a_shim_node(tmp_path / "a") as ours, a_shim_node(tmp_path / "b") as theirs:
        for node in (ours, theirs):
            node.launch(order)
        await eventually(lambda: (len(living(ours, order)), len(living(theirs, order))) == (1, 1))
        processes.kill_marked(ours.folder.mark(order.grant))
        await eventually(lambda: living(ours, order) == [])
        assert len(living(theirs, order)) == 1


def test_a_shim_starts_without_what_is_slow_to_import(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(json.dumps({"boot": BOOT}))
    argv = [PYTHON, "-I", "-S", "-B", "-X", "importtime", str(processes.SHIM), str(tmp_path)]
    told = subprocess.run(argv, stderr=subprocess.PIPE, text=True, check=False).stderr
    assert "KeyError: 'lock_wait_seconds'" in told  # it came as far as the locks
    imported = {line.rpartition("|")[2].strip() for line in told.splitlines() if line.startswith("import time:")}
    assert {"socket", "services.agent.shim.life"} <= imported
    assert imported & SLOW == set()
    assert len(imported) < MOST_MODULES


def test_a_stranger_with_a_mark_that_is_no_text_hides_nobody() -> None:
    with subprocess.Popen(["sleep", "60"], env={MARK.encode(): b"\xff\xfe"}) as stranger:
        try:
            assert stranger.pid in [pid for pids in processes.all_marked().values() for pid in pids]
        finally:
            stranger.kill()
