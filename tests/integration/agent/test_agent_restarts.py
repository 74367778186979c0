import os
import shutil
import signal
from collections.abc import Awaitable, Callable

import pytest

from schemas.calls import FoundState, LaunchOrder, Verdict
from schemas.reasons import Code
from schemas.runtime import Holder, ObservationReported, RunEvent
from schemas.workload import RankExit
from services.agent.core.runs import devices_of
from services.agent.shim.files import write
from services.agent.store import processes
from services.agent.store.folder import FolderTakenError
from tests.integration.agent.conftest import World
from tests.support.builders_agent import declared
from tests.support.eventually import eventually

STARTED, ENDED = RunEvent.STARTED, RunEvent.ENDED


async def test_a_run_goes_on_without_its_agent_and_is_adopted(world: World) -> None:
    await world.start_agent()
    order = world.order("sh", "-c", f"while [ ! -e {world.path}/go ]; do sleep 0.05; done")
    await world.ledger.launch(order)
    started = await world.noticed(order, STARTED)
    await world.stop_agent()
    await world.start_agent()
    assert [run.state for run in (await world.ledger.find(order)).runs] == [FoundState.RUNNING]
    await eventually(lambda: len(world.ledger.hellos) == 2)
    assert world.ledger.hellos[1].holders == (
        Holder(grant=order.grant, epoch=1, run=order.run, instance=started.instance, devices=devices_of(order)),
    )
    (world.path / "go").touch()
    ended = await world.noticed(order, ENDED)
    assert ended.exit
    assert ended.exit.succeeded


async def test_a_run_that_ended_without_its_agent_is_told_by_the_next(world: World) -> None:
    await world.start_agent()
    order = world.order("sh", "-c", f"while [ ! -e {world.path}/go ]; do sleep 0.05; done; exit 7")
    await world.ledger.launch(order)
    await world.noticed(order, STARTED)
    await world.stop_agent()
    (world.path / "go").touch()
    await eventually(lambda: world.run_folder(order).evidence("boot-1").exit)
    await world.start_agent()
    ended = await world.noticed(order, ENDED)
    assert ended.exit
    assert ended.exit.ranks == (RankExit(rank=0, exit_code=7),)


async def test_a_shim_killed_under_its_run_is_told_without_a_record_and_cleared_on_order_only(world: World) -> None:
    await world.start_agent()
    order = world.order("sleep", "60")
    await world.ledger.launch(order)
    await world.noticed(order, STARTED)
    await eventually(lambda: world.living(order))
    instance = world.run_folder(order).instance
    assert instance
    os.kill(instance.pid, signal.SIGKILL)
    assert (await world.noticed(order, ENDED)).exit is None
    assert [each.grant for each in (await world.next_report()).holders] == [order.grant]
    assert not (await world.ledger.seal(order, stop=False)).sealed
    assert world.living(order)
    if world.run_folder(order).shim_order["cgroup"]:
        await eventually(sealed(world, order))
        assert world.living(order) == []
        assert [run.exit for run in (await world.ledger.find(order)).runs] == [None]


async def test_without_a_control_group_a_run_that_lost_its_shim_is_never_sealed_in_this_boot(world: World) -> None:
    await world.start_agent()
    order = world.order("sleep", "60")
    await world.ledger.launch(order)
    await world.noticed(order, STARTED)
    folder = world.run_folder(order)
    shim_order, instance = folder.shim_order, folder.instance
    assert instance
    os.kill(instance.pid, signal.SIGKILL)
    await world.noticed(order, ENDED)
    write(folder.path / "order.json", shim_order | {"cgroup": None})
    await eventually(gone(world, order))
    seal = await world.ledger.seal(order)
    assert seal.reason
    assert (seal.sealed, seal.reason.code) == (False, Code.UNKNOWN)
    other = world.order("true", job="job_b", epoch=2)
    await world.ledger.launch(other)
    ended = await world.noticed(other, ENDED)
    assert ended.exit
    assert ended.exit.refused
    assert ended.exit.refused.code is Code.DEVICE_NOT_CLEAR
    await world.stop_agent()
    await world.start_agent(boot="boot-2")
    assert (await world.ledger.seal(order)).sealed


async def test_runs_of_an_earlier_boot_are_over(world: World) -> None:
    await world.start_agent()
    order = world.order("sleep", "60")
    await world.ledger.launch(order)
    await world.noticed(order, STARTED)
    instance = world.run_folder(order).instance
    assert instance
    await world.stop_agent()
    os.kill(instance.pid, signal.SIGKILL)
    processes.kill_marked(world.mark(order))
    await world.start_agent(boot="boot-2")
    ended = await world.noticed(order, ENDED)
    assert (ended.exit, ended.boot) == (None, "boot-1")
    assert (await world.next_report()).holders == ()
    seal = await world.ledger.seal(order)
    assert (seal.sealed, seal.boot) == (True, "boot-2")


async def test_an_agent_says_hello_again_with_the_number_of_boots_that_it_was_told(world: World) -> None:
    world.ledger.boots = 3
    await world.start_agent()
    order = world.order("true")
    await world.ledger.launch(order)
    await world.noticed(order, ENDED)
    assert [hello.boots for hello in world.ledger.hellos] == [0, 3]


async def test_a_new_folder_in_a_known_boot_makes_a_blind_node_until_its_next_boot(world: World) -> None:
    world.ledger.boot_known = True
    await world.start_agent()
    order = world.order("true")
    await eventually(lambda: world.ledger.hellos)
    report = await world.next_report()
    assert report.blind
    assert report.blind.code is Code.NODE_BLIND
    reply = await world.ledger.launch(order)
    seal = await world.ledger.seal(order)
    assert reply.reason
    assert seal.reason
    assert (reply.accepted, reply.reason.code) == (False, Code.NODE_BLIND)
    assert (seal.sealed, seal.reason.code) == (False, Code.NODE_BLIND)
    await world.stop_agent()
    await world.start_agent()
    assert not (await world.ledger.launch(order)).accepted
    await world.stop_agent()
    world.ledger.boot_known = False
    await world.start_agent(boot="boot-2")
    assert (await world.ledger.launch(order)).accepted


async def test_a_folder_that_is_taken_away_makes_a_blind_node(world: World) -> None:
    await world.start_agent()
    shutil.rmtree(world.path / "run")
    (world.path / "run" / "runs").mkdir(parents=True)
    assert not (await world.ledger.launch(world.order("true"))).accepted
    assert not (await world.ledger.seal(world.order("true"))).sealed


async def test_nothing_is_claimed_from_a_new_folder_before_the_ledger_was_greeted(world: World) -> None:
    world.server.answerers["call.grant.hello"].clear()
    await world.start_agent()
    order = world.order("true")
    await world.ledger.launch(order)
    await eventually(lambda: world.run_folder(order).instance)
    assert (world.ledger.claims, [run.state for run in (await world.ledger.find(order)).runs]) == (
        [],
        [FoundState.WAITING],
    )


async def test_agents_of_a_new_folder_are_one_incarnation_until_the_ledgers_answer_is_kept(world: World) -> None:
    world.ledger.deaf = True
    await world.start_agent()
    await eventually(lambda: world.ledger.hellos)
    await world.stop_agent()
    world.ledger.deaf = False
    count = len(world.ledger.hellos)
    await world.start_agent()
    await eventually(lambda: len(world.ledger.hellos) > count)
    await world.stop_agent()
    await world.start_agent()
    await eventually(lambda: len(world.ledger.hellos) > count + 1)
    *first, last = [hello.incarnation for hello in world.ledger.hellos]
    assert len(set(first)) == 1
    assert last != first[0]


async def test_a_second_agent_on_one_folder_does_not_start(world: World) -> None:
    await world.start_agent()
    first = world.agent
    with pytest.raises(FolderTakenError):
        await world.start_agent()
    assert world.agent
    await world.agent.stop()
    world.agent = first


async def test_a_holder_the_ledger_has_stopped_is_stopped_and_an_unknown_one_is_not(world: World) -> None:
    await world.start_agent()
    orders = [world.order("sleep", "60", job=f"job_{n}", first=n, epoch=n + 1) for n in range(3)]
    for order in orders:
        await world.ledger.launch(order)
    for order in orders:
        await world.noticed(order, STARTED)
    await world.stop_agent()
    kept, stopped, unknown = orders
    world.ledger.verdicts = {stopped.grant: Verdict.STOP, unknown.grant: Verdict.UNKNOWN, kept.grant: Verdict.KEEP}
    await world.start_agent()
    ended = await world.noticed(stopped, ENDED)
    assert ended.exit
    assert ended.exit.stopped
    assert [len(world.living(order)) for order in orders] == [1, 0, 1]


async def test_g8_a_node_that_has_forgotten_every_epoch_starts_what_the_ledger_allows_and_nothing_else(
    world: World,
) -> None:
    await world.start_agent()
    newest = world.order("true", job="job_new", epoch=9)
    await world.ledger.launch(newest)
    await world.noticed(newest, ENDED)
    await world.stop_agent()
    for run in (world.path / "run" / "runs").iterdir():
        shutil.rmtree(run)  # it never saw an epoch, on the same devices
    await world.start_agent()
    old = world.order("true", job="job_old", epoch=3)
    world.ledger.over.add(old.grant)
    assert (await world.ledger.launch(old)).accepted
    refused = (await world.noticed(old, ENDED)).exit
    assert refused
    assert refused.refused
    assert (refused.refused.code, refused.ranks) == (Code.GRANT_OVER, ())
    lower = world.order("true", job="job_next", epoch=4)  # allowed by the ledger, whatever was here before
    await world.ledger.launch(lower)
    ended = (await world.noticed(lower, ENDED)).exit
    assert ended
    assert ended.succeeded


async def test_g8_after_a_reboot_without_any_memory_a_late_launch_of_an_old_grant_starts_nothing(world: World) -> None:
    await world.start_agent()
    old = world.order("true", epoch=3)
    await world.stop_agent()
    shutil.rmtree(world.path / "run")
    await world.start_agent(boot="boot-2")
    world.ledger.over.add(old.grant)
    await world.ledger.launch(old)
    refused = (await world.noticed(old, ENDED)).exit
    assert refused
    assert refused.refused
    assert refused.refused.code is Code.GRANT_OVER


async def test_reports_rise_and_the_first_is_the_hello(world: World) -> None:
    await world.start_agent()
    await world.next_report()
    await world.stop_agent()
    before = world.said(ObservationReported)
    await world.start_agent()
    await world.next_report()
    reports = world.said(ObservationReported)
    assert [report.hello for report in reports] == [index in (0, len(before)) for index in range(len(reports))]
    assert sorted(reports, key=lambda report: report.sequence) == reports
    assert {(report.node_name, report.cluster_name, report.blind) for report in reports} == {
        ("n1", world.cluster, None)
    }
    assert tuple(device.device for device in reports[0].devices) == declared(8, world.cluster)


def sealed(world: World, order: LaunchOrder) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return (await world.ledger.seal(order)).sealed

    return check


def gone(world: World, order: LaunchOrder) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        await world.ledger.seal(order)
        processes.kill_marked(world.mark(order))
        return not world.living(order)

    return check
