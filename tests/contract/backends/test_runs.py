import pytest

from schemas.calls import FoundState, Stop
from schemas.ids import NodeId
from schemas.reasons import Code
from schemas.runtime import RunEvent
from schemas.workload import RankExit
from services.agent.core.runs import devices_of
from tests.support.backends import Backend

STARTED, ENDED = RunEvent.STARTED, RunEvent.ENDED


async def test_a_run_is_claimed_then_starts_then_ends_and_is_proved_over(backend: Backend) -> None:
    order = backend.order(seconds=0.2, devices=2)
    (reply,) = await backend.runs.launch([order])
    assert reply
    assert (reply.run, reply.grant, reply.accepted, reply.reason) == (order.run, order.grant, True, None)
    started = await backend.noticed(order, STARTED)
    ended = await backend.noticed(order, ENDED)
    (claim,) = backend.book.claims
    assert (claim.grant, claim.epoch, claim.node, claim.devices) == (order.grant, 1, order.node, devices_of(order))
    assert {claim.instance, started.instance, ended.instance} == {claim.instance}
    assert {claim.boot, started.boot, ended.boot} == {claim.boot}
    assert ended.exit
    assert (ended.exit.ranks, ended.exit.succeeded) == ((RankExit(rank=0, exit_code=0),), True)
    seal = await backend.seal(order)
    assert (seal.sealed, seal.reason, seal.exit, seal.boot) == (True, None, ended.exit, claim.boot)
    assert (seal.grant, seal.epoch, seal.node, seal.revocation) == (order.grant, 1, order.node, 2)


async def test_every_replica_of_a_part_is_in_the_record(backend: Backend) -> None:
    order = backend.order(code=3, replicas=2, first_rank=4, world_size=8)
    await backend.runs.launch([order])
    record = (await backend.noticed(order, ENDED)).exit
    assert record
    assert [rank.rank for rank in record.ranks] == [4, 5]
    assert 3 in [rank.exit_code for rank in record.ranks]
    assert not record.succeeded


async def test_a_launch_that_comes_again_changes_nothing(backend: Backend) -> None:
    order = backend.order(seconds=0.5)
    first = await backend.runs.launch([order, order])
    await backend.noticed(order, STARTED)
    again = await backend.runs.launch([order])
    await backend.noticed(order, ENDED)
    late = await backend.runs.launch([order])
    assert [reply.accepted for reply in [*first, *again, *late] if reply] == [True] * 4
    assert len(backend.book.claims) == 1
    assert len([fact for fact in backend.heard() if fact.event is ENDED]) == 1


async def test_one_call_a_node_starts_many(backend: Backend) -> None:
    orders = [
        backend.order(job=f"job_{node}{number}", node=node, first=number, epoch=number + 1)
        for node in ("n1", "n2")
        for number in range(4)
    ]
    replies = await backend.runs.launch(orders)
    assert [reply.run for reply in replies if reply and reply.accepted] == [order.run for order in orders]
    for order in orders:
        ended = await backend.noticed(order, ENDED)
        assert ended.exit
        assert ended.exit.succeeded


async def test_a_run_is_found_where_it_is_and_nowhere_else(backend: Backend) -> None:
    order, never = backend.order(seconds=30), backend.order(job="job_never")
    await backend.runs.launch([order])
    await backend.noticed(order, STARTED)
    found = (await backend.runs.find({order.node: [order.run, never.run]}))[order.node]
    assert found
    assert found.ready
    (run,) = found.runs
    assert (run.run, run.grant, run.epoch, run.state, run.exit) == (
        order.run,
        order.grant,
        1,
        FoundState.RUNNING,
        None,
    )
    await backend.seal(order, stop=True)
    ended = await backend.noticed(order, ENDED)
    everything = (await backend.runs.find({order.node: []}))[order.node]
    assert everything
    assert [(run.run, run.state, run.exit) for run in everything.runs] == [(order.run, FoundState.ENDED, ended.exit)]


async def test_a_node_that_does_not_answer_is_unknown(backend: Backend) -> None:
    nobody = NodeId("node_nobody")
    order = backend.order().model_copy(update={"node": nobody})
    stop = Stop(run=order.run, grant=order.grant, epoch=1, grace_seconds=1)
    assert await backend.runs.launch([order]) == [None]
    assert await backend.runs.find({nobody: []}) == {nobody: None}
    assert await backend.runs.stop([(nobody, stop)]) == [None]


async def test_a_refused_claim_starts_nothing(backend: Backend) -> None:
    order = backend.order()
    backend.book.over.add(order.grant)
    await backend.runs.launch([order])
    record = (await backend.noticed(order, ENDED)).exit
    assert record
    assert record.refused
    assert (record.refused.code, record.ranks, record.started_at) == (Code.GRANT_OVER, (), None)
    assert [fact.event for fact in backend.heard()] == [ENDED]
    assert (await backend.seal(order)).sealed


async def test_a_device_in_use_is_not_clear_for_another(backend: Backend) -> None:
    first, second = backend.order(seconds=30, job="job_a"), backend.order(job="job_b", epoch=2)
    await backend.runs.launch([first])
    await backend.noticed(first, STARTED)
    await backend.runs.launch([second])
    record = (await backend.noticed(second, ENDED)).exit
    assert record
    assert record.refused
    assert record.refused.code is Code.DEVICE_NOT_CLEAR
    assert [claim.grant for claim in backend.book.claims] == [first.grant]
    await backend.seal(first, stop=True)
    await backend.noticed(first, ENDED)


async def test_a_device_that_is_not_there_refuses_the_launch(backend: Backend) -> None:
    (reply,) = await backend.runs.launch([backend.order(first=4)])
    assert reply
    assert reply.reason
    assert (reply.accepted, reply.reason.code) == (False, Code.DEVICE_MISMATCH)


async def test_a_stop_ends_a_run_and_says_so_in_the_record(backend: Backend) -> None:
    order = backend.order(seconds=30)
    await backend.runs.launch([order])
    await backend.noticed(order, STARTED)
    stop = Stop(run=order.run, grant=order.grant, epoch=1, grace_seconds=1)
    unknown = stop.model_copy(update={"epoch": 9})
    answers = await backend.runs.stop([(order.node, stop), (order.node, unknown)])
    assert [answer.known for answer in answers if answer] == [True, False]
    record = (await backend.noticed(order, ENDED)).exit
    assert record
    assert (record.stopped, record.timed_out, record.succeeded) == (True, False, False)


async def test_a_cancel_past_the_platform_is_told_from_every_other_end(backend: Backend) -> None:
    if backend.cancel is None:
        pytest.skip("nobody gets into a pretended cluster that an agent stands for")
    order = backend.order(seconds=30)
    await backend.runs.launch([order])
    await backend.noticed(order, STARTED)
    who = backend.cancel(order)
    record = (await backend.noticed(order, ENDED)).exit
    assert record
    assert (record.cancelled_by, record.stopped, record.succeeded) == (who, True, False)


async def test_a_running_part_is_not_sealed_and_a_stop_with_the_question_leads_there(backend: Backend) -> None:
    order = backend.order(seconds=30)
    await backend.runs.launch([order])
    await backend.noticed(order, STARTED)
    seal = await backend.seal(order)
    assert seal.reason
    assert (seal.sealed, seal.reason.code) == (False, Code.STILL_RUNNING)
    seal = await backend.seal(order, stop=True)
    assert seal.sealed or (seal.reason and seal.reason.code is Code.STILL_RUNNING)  # it may end before the look
    ended = await backend.noticed(order, ENDED)
    seal = await backend.seal(order)
    assert (seal.sealed, seal.exit) == (True, ended.exit)


async def test_what_never_came_is_sealed_without_a_record(backend: Backend) -> None:
    seal = await backend.seal(backend.order())
    assert (seal.sealed, seal.exit) == (True, None)


async def test_a_run_over_its_time_limit_is_ended(backend: Backend) -> None:
    order = backend.order(seconds=30, time_limit_seconds=1)
    await backend.runs.launch([order])
    record = (await backend.noticed(order, ENDED)).exit
    assert record
    assert (record.timed_out, record.stopped, record.succeeded) == (True, False, False)


async def test_a_ledger_that_is_away_is_asked_until_it_is_back(backend: Backend) -> None:
    backend.book.silent = True
    order = backend.order()
    await backend.runs.launch([order])
    await backend.until(lambda: len(backend.book.claims) >= 2)
    assert backend.heard() == []
    backend.book.silent = False
    record = (await backend.noticed(order, ENDED)).exit
    assert record
    assert record.succeeded
    assert len({claim.nonce for claim in backend.book.claims}) == len(backend.book.claims)
    assert len({claim.instance for claim in backend.book.claims}) == 1
