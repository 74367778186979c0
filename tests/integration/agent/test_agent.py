import asyncio
import os

import pytest

from schemas.calls import FoundState, Launch, LaunchAnswer
from schemas.ids import cluster_id, node_id
from schemas.reasons import Code
from schemas.runtime import ObservationNoticed, RunEvent
from schemas.workload import RankExit
from services.agent.core.runs import devices_of
from tests.integration.agent.conftest import World
from tests.support.eventually import eventually

STARTED, ENDED = RunEvent.STARTED, RunEvent.ENDED


async def test_a_run_is_claimed_started_noticed_and_sealed_with_its_exit_record(world: World) -> None:
    await world.start_agent()
    order = world.order("sh", "-c", "echo hello; exit 0", devices=2)
    reply = await world.ledger.launch(order)
    assert (reply.accepted, reply.reason) == (True, None)
    ended = await world.noticed(order, ENDED)
    started = await world.noticed(order, STARTED)
    (claim,) = world.ledger.claims
    assert (claim.grant, claim.epoch, claim.boot, claim.instance) == (order.grant, 1, "boot-1", started.instance)
    assert claim.devices == devices_of(order)
    assert ended.exit
    assert (ended.exit.succeeded, ended.exit.instance) == (True, claim.instance)
    seal = await world.ledger.seal(order)
    assert (seal.sealed, seal.reason, seal.boot, seal.revocation) == (True, None, "boot-1", 2)
    assert (seal.devices, seal.exit) == (
        tuple(device.device for replica in order.replicas for device in replica.devices),
        ended.exit,
    )


async def test_a_refused_claim_starts_nothing(world: World) -> None:
    await world.start_agent()
    order = world.order("touch", str(world.path / "started"))
    world.ledger.over.add(order.grant)
    assert (await world.ledger.launch(order)).accepted
    ended = await world.noticed(order, ENDED)
    assert ended.exit
    assert ended.exit.refused
    assert (ended.exit.refused.code, ended.exit.ranks) == (Code.GRANT_OVER, ())
    assert not (world.path / "started").exists()
    assert [fact.event for fact in world.said(ObservationNoticed)] == [ENDED]


async def test_where_nodes_have_no_address_a_setting_says_where_rank_0_is(world: World) -> None:
    await world.start_agent(master_addr="10.0.0.7")
    order = world.order("sh", "-c", "echo $MASTER_ADDR $MASTER_PORT")
    await world.ledger.launch(order)
    await world.noticed(order, ENDED)
    assert (await world.ledger.logs(order)).text == "10.0.0.7 29400\n"


async def test_a_launch_that_comes_twice_starts_once(world: World) -> None:
    await world.start_agent()
    order = world.order("sh", "-c", f"echo x >> {world.path}/starts; sleep 0.3")
    replies = [await world.ledger.launch(order) for _ in range(3)]
    await world.noticed(order, ENDED)
    replies.append(await world.ledger.launch(order))
    assert [reply.accepted for reply in replies] == [True] * 4
    assert (world.path / "starts").read_text() == "x\n"


async def test_a_second_instance_of_a_claimed_grant_is_refused(world: World) -> None:
    await world.start_agent()
    order = world.order("true")
    world.ledger.claimed[order.grant, order.node] = ("another instance", "boot-1")
    await world.ledger.launch(order)
    ended = await world.noticed(order, ENDED)
    assert ended.exit
    assert ended.exit.refused
    assert ended.exit.refused.code is Code.ALREADY_STARTED


async def test_a_ledger_that_does_not_answer_is_asked_again_with_another_nonce(world: World) -> None:
    await world.start_agent()
    world.ledger.silent = True
    order = world.order("true")
    await world.ledger.launch(order)
    await eventually(lambda: len(world.ledger.claims) >= 3)
    assert [run.state for run in (await world.ledger.find(order)).runs] == [FoundState.WAITING]
    world.ledger.silent = False
    await world.noticed(order, ENDED)
    assert len({claim.nonce for claim in world.ledger.claims}) == len(world.ledger.claims)
    assert {claim.instance for claim in world.ledger.claims} == {world.ledger.claimed[order.grant, order.node][0]}


async def test_a_stop_ends_a_run_and_the_seal_waits_for_it(world: World) -> None:
    await world.start_agent()
    waits = f"until [ -e {world.path}/sealed ]; do sleep 0.1; done"
    ends_slowly = f"trap 'trap - TERM; {waits}; kill $$' TERM; : > {world.path}/runs; sleep 60 & wait"
    order = world.order("sh", "-c", ends_slowly)
    await world.ledger.launch(order)
    await eventually((world.path / "runs").exists)
    first = await world.ledger.seal(order, grace_seconds=30)
    assert first.reason
    assert (first.sealed, first.reason.code) == (False, Code.STILL_RUNNING)
    (world.path / "sealed").touch()
    ended = await world.noticed(order, ENDED)
    assert ended.exit
    assert (ended.exit.stopped, ended.exit.ranks) == (True, (RankExit(rank=0, exit_code=None, signal=15),))
    second = await world.ledger.seal(order)
    assert (second.sealed, second.exit) == (True, ended.exit)


async def test_a_seal_without_a_stop_stops_nothing(world: World) -> None:
    await world.start_agent()
    order = world.order("sleep", "60")
    await world.ledger.launch(order)
    await world.noticed(order, STARTED)
    assert not (await world.ledger.seal(order, stop=False)).sealed
    assert [run.state for run in (await world.ledger.find(order)).runs] == [FoundState.RUNNING]


async def test_what_never_came_is_sealed_without_a_record_and_is_not_known_to_a_stop(world: World) -> None:
    await world.start_agent()
    order = world.order("true")
    seal = await world.ledger.seal(order)
    assert (seal.sealed, seal.exit) == (True, None)
    assert not (await world.ledger.stop(order)).known
    assert (await world.ledger.find(order)).runs == ()


async def test_a_device_that_a_stranger_holds_is_not_clear_for_a_start_nor_for_a_seal(world: World) -> None:
    await world.start_agent()
    order = world.order("true")
    (device,) = devices_of(order)
    lock = world.path / "run" / "devices" / device
    lock.touch(mode=0o600)
    with lock.open() as file:
        stranger = await asyncio.create_subprocess_exec("sleep", "60", stdin=file)
        await world.ledger.launch(order)
        ended = await world.noticed(order, ENDED)
        assert ended.exit
        assert ended.exit.refused
        assert (ended.exit.refused.code, world.ledger.claims) == (Code.DEVICE_NOT_CLEAR, [])
        seal = await world.ledger.seal(order)
        assert not seal.sealed
        assert seal.reason
        assert f"process {stranger.pid} holds {device}" in seal.reason.message
        report = await world.next_report()
        assert {(each.device, each.pid) for each in report.unmanaged} >= {(device, stranger.pid)}
        stranger.kill()
        await stranger.wait()
    assert (await world.ledger.seal(order)).sealed


async def test_output_is_read_in_pieces(world: World) -> None:
    await world.start_agent()
    order = world.order("sh", "-c", "seq 1000")
    await world.ledger.launch(order)
    await world.noticed(order, ENDED)
    text, offset, ended = "", 0, False
    while not ended:
        piece = await world.ledger.logs(order, offset=offset, limit=1_000)
        text, offset, ended = text + piece.text, piece.next_offset, piece.ended
    assert text == "".join(f"{number}\n" for number in range(1, 1_001))
    assert not (await world.ledger.logs(world.order("true", job="job_x"))).known


async def test_a_device_that_is_not_here_and_another_nodes_order_are_refused(world: World) -> None:
    await world.start_agent()
    reply = await world.ledger.launch(world.order("true", first=8))
    assert reply.reason
    assert (reply.accepted, reply.reason.code) == (False, Code.DEVICE_MISMATCH)
    assert world.agent
    other = world.order("true").model_copy(update={"node": node_id(cluster_id(world.cluster), "n2")})
    body = await world.ledger.service.call(
        f"call.node.{world.order('true').node}.launch", Launch(orders=(other,)), timeout=30
    )
    assert [answer.accepted for answer in LaunchAnswer.model_validate_json(body).replies] == [False]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a run as somebody else")
async def test_a_run_of_roots_agent_belongs_to_nobody(world: World) -> None:
    await world.start_agent(run_as="nobody", allow_root=False)
    order = world.order("sh", "-c", "id -un; touch mine && ls")
    await world.ledger.launch(order)
    await world.noticed(order, ENDED)
    assert (await world.ledger.logs(order)).text == "nobody\nmine\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root could become root")
async def test_a_run_is_not_root_unless_a_setting_allows_it(world: World) -> None:
    await world.start_agent(run_as="root", allow_root=False)
    reply = await world.ledger.launch(world.order("true"))
    assert reply.reason
    assert (reply.accepted, reply.reason.code) == (False, Code.ROOT_REFUSED)
    await world.stop_agent()
    await world.start_agent(run_as="root", allow_root=True)
    order = world.order("sh", "-c", "id -u")
    await world.ledger.launch(order)
    await world.noticed(order, ENDED)
    assert (await world.ledger.logs(order)).text == "0\n"


async def test_only_so_many_folders_of_ended_runs_stay(world: World) -> None:
    await world.start_agent(retain_runs=2)
    orders = [world.order("true", job=f"job_{number}", epoch=number + 1) for number in range(4)]
    for order in orders:
        await world.ledger.launch(order)
        await world.noticed(order, ENDED)
    await world.stop_agent()
    await world.start_agent(retain_runs=2)
    runs = world.path / "run" / "runs"
    await eventually(lambda: len(list(runs.iterdir())) == 2)
    assert sorted(path.name for path in runs.iterdir()) == ["job_2-a1-e3", "job_3-a1-e4"]


async def test_folders_of_runs_go_after_their_time(world: World) -> None:
    await world.start_agent(retain_seconds=0)
    order = world.order("true")
    await world.ledger.launch(order)
    await world.noticed(order, ENDED)
    await world.stop_agent()
    await world.start_agent(retain_seconds=0)
    await eventually(lambda: not (world.path / "run" / "runs" / f"{order.run}-e1").exists())
    assert (await world.ledger.seal(order)).sealed
