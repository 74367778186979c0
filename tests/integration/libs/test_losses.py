"""Servers crash, streams vanish, receipts get lost: it costs time and nothing else."""

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from itertools import count
from uuid import UUID

from libs.errors import TransientError
from libs.service import Service, Turn
from schemas.base import Envelope
from schemas.ids import fact_id
from tests.support.eventually import eventually
from tests.support.shell_services import QUEUED, SUBMITTED, admission, gateway, submitted, wish
from tests.support.shell_worlds import World

NAMES = [f"job-{number:02}" for number in range(20)]


async def test_a_crash_between_commit_and_publish_loses_nothing(world: World) -> None:
    first = gateway(world)
    await first.start()
    await world.bus_away()
    await wish(first, "one", "two")
    await first.stop()  # as good as a crash: nobody hears its last words
    await world.bus_back()
    async with world.running(gateway(world)):
        await eventually(lambda: _equal(world.kinds("WORKLOAD"), [f"{SUBMITTED} one", f"{SUBMITTED} two"]))


async def test_a_crash_between_publish_and_receipt_takes_effect_once(world: World) -> None:
    sayer = gateway(world)
    async with world.running(sayer, admission(world)):
        await world.say(submitted("one"))  # the stream has it under the id that the outbox is about to use
        await wish(sayer, "one", "two")
        await eventually(lambda: _equal(world.effects("gateway"), ["one", "two"]))
        stored = await eventually(lambda: _identities(world, SUBMITTED, 3))
    one, two = fact_id(SUBMITTED, "one", 1), fact_id(SUBMITTED, "two", 1)
    assert sorted(stored) == sorted([f"{one}.1", f"{one}.2", f"{two}.1"])
    assert await world.effects("admission") == ["one", "two"]


async def test_a_crash_between_commit_and_ack_takes_effect_once(world: World) -> None:
    handled: list[str] = []

    async def react(_: Turn, heard: Envelope) -> None:
        handled.append(heard.key)
        if len(handled) == 1:
            await world.bus_away()  # so the turn commits, and its ack is lost

    first = admission(world, react, ack_wait_seconds=1.0)
    await first.start()
    await world.say(submitted("one"))
    await eventually(lambda: _equal(world.effects("admission"), ["one"]))
    await first.stop()  # as good as a crash: nobody hears its last words
    await world.bus_back()
    async with world.running(admission(world, ack_wait_seconds=1.0)):
        await world.say(submitted("two"))
        await eventually(lambda: _equal(world.effects("admission"), ["one", "two"]))
        await eventually(lambda: _same_set(world.kinds("WORKLOAD"), _chain(["one", "two"])))
        await eventually(lambda: _in_hand(world, 0))  # what was not acknowledged came again, after its ack wait
    assert await world.effects("admission") == ["one", "two"]


async def test_a_stream_that_is_deleted_comes_back_by_itself_and_with_all_that_was_said(world: World) -> None:
    sayer = gateway(world, sweep_seconds=600)
    async with world.running(sayer, admission(world, sweep_seconds=600)):
        await wish(sayer, "one")
        await eventually(lambda: _equal(world.effects("gateway"), ["one"]))
        await world.delete_stream("WORKLOAD")
        await wish(sayer, "two")
        await eventually(lambda: _equal(world.effects("gateway"), ["one", "two"]), seconds=30)
        await eventually(lambda: _same_set(world.kinds("WORKLOAD"), _chain(["one", "two"])), seconds=30)
    assert await world.effects("admission") == ["one", "two"]


async def test_a_stream_that_vanishes_while_all_is_quiet_comes_back_with_all_that_was_said(world: World) -> None:
    sayer = gateway(world, sweep_seconds=600)
    async with world.running(sayer, admission(world, sweep_seconds=600)):
        await wish(sayer, *NAMES)
        await eventually(lambda: _equal(world.effects("gateway"), NAMES))
        await world.delete_stream("WORKLOAD")
        await eventually(lambda: _same_set(world.kinds("WORKLOAD"), _chain(NAMES)), seconds=30)
    assert await world.effects("admission") == NAMES


async def test_a_stream_is_filled_again_without_a_storm_of_answers_to_what_is_said_again(world: World) -> None:
    sayer = gateway(world, sweep_seconds=0.2)  # so that what was said is soon old enough to be said again
    async with world.running(sayer, admission(world, sweep_seconds=0.2)):
        await wish(sayer, *NAMES)
        await eventually(lambda: _equal(world.effects("gateway"), NAMES))
        await world.delete_stream("WORKLOAD")
        await eventually(lambda: _same_set(world.kinds("WORKLOAD"), _chain(NAMES)), seconds=30)
        await world.say(submitted("last"))
        await eventually(lambda: _equal(world.effects("gateway"), [*NAMES, "last"]), seconds=30)
        assert sorted(await world.kinds("WORKLOAD")) == sorted(_chain([*NAMES, "last"]))


async def test_a_durable_that_is_deleted_comes_back_by_itself(world: World) -> None:
    async with world.running(admission(world)):
        await world.say(submitted("one"))
        await eventually(lambda: _equal(world.effects("admission"), ["one"]))
        await world.delete_durable("WORKLOAD", "admission-workload")
        await world.say(submitted("two"))
        await eventually(lambda: _equal(world.effects("admission"), ["one", "two"]), seconds=30)


async def test_s55_acknowledged_facts_that_the_broker_lost_are_said_again_by_the_sweep(world: World) -> None:
    sayer = gateway(world, sweep_seconds=1.0)
    sayer.sweep(lambda turn: _unanswered(world, turn))
    async with world.running(sayer):
        await wish(sayer, *NAMES)
        await eventually(lambda: _equal(world.kinds("WORKLOAD"), [f"{SUBMITTED} {name}" for name in NAMES]))
        await world.delete_last("WORKLOAD", 8)
        async with world.running(admission(world, sweep_seconds=1.0)):
            await eventually(lambda: _same_set(world.effects("gateway"), NAMES))
    assert await world.effects("admission") == NAMES


async def test_an_answer_that_the_broker_lost_is_said_again_when_the_question_is(world: World) -> None:
    sayer = gateway(world, sweep_seconds=1.0)
    answerer, times = admission(world, sweep_seconds=1.0), count(2)
    async with world.running(answerer):
        await world.say(submitted("one"))
        await eventually(lambda: _equal(world.kinds("WORKLOAD"), _chain(["one"])))
        await world.delete_last("WORKLOAD", 1)
        async with world.running(sayer):
            await eventually(lambda: _insist(world, times))
    assert await world.effects("admission") == ["one"]


async def test_a_restart_of_the_message_server_stops_work_for_seconds_and_loses_nothing(world: World) -> None:
    sayer = gateway(world)
    async with world.running(sayer, admission(world)):
        await wish(sayer, "before")
        await eventually(lambda: _equal(world.effects("gateway"), ["before"]))
        await world.bus_away()
        await wish(sayer, "during")
        await world.bus_back()
        await wish(sayer, "after")
        await eventually(lambda: _equal(world.effects("gateway"), ["before", "during", "after"]), seconds=30)
    assert await world.effects("admission") == ["before", "during", "after"]


async def test_a_restart_of_the_store_stops_work_for_seconds_and_loses_nothing(world: World) -> None:
    sayer = gateway(world)
    async with world.running(sayer, admission(world)):
        await wish(sayer, "before")
        await eventually(lambda: _equal(world.effects("gateway"), ["before"]))
        await world.store_away()
        await world.say(submitted("during"))
        await eventually(lambda: _in_hand(world, 1))
        await world.store_back()
        await eventually(lambda: _equal(world.effects("gateway"), ["before", "during"]), seconds=30)
        await eventually(lambda: _wished(sayer, "after"))
        await eventually(lambda: _equal(world.effects("gateway"), ["before", "during", "after"]), seconds=30)
    assert await world.effects("admission") == ["before", "during", "after"]
    assert await world.stored("DEAD") == []


async def _unanswered(world: World, _: Turn) -> Sequence[UUID]:
    answered = set(await world.effects("gateway"))
    return [fact_id(SUBMITTED, name, 1) for name in NAMES if name not in answered]


def _chain(names: Sequence[str]) -> list[str]:
    return [f"{kind} {name}" for name in names for kind in (SUBMITTED, QUEUED)]


async def _equal(actual: Awaitable[list[str]], expected: list[str]) -> bool:
    found = await actual
    assert found == expected
    return True


async def _same_set(actual: Awaitable[list[str]], expected: list[str]) -> bool:
    found = await actual
    assert sorted(set(found)) == sorted(expected)
    return True


async def _wished(service: Service, name: str) -> bool:
    """Wish, and wish again while the store is not there for this connection yet, as every caller does."""
    with suppress(TransientError):
        await wish(service, name)
        return True
    return False


async def _in_hand(world: World, expected: int) -> bool:
    assert await world.in_hand("WORKLOAD", "admission-workload") == expected
    return True


async def _insist(world: World, times: "count[int]") -> bool:
    await world.say(submitted("one"), time=next(times))
    assert await world.effects("gateway") == ["one"]
    return True


async def _identities(world: World, kind: str, count: int) -> list[str]:
    found = [each.headers["Nats-Msg-Id"] for each in await world.stored("WORKLOAD") if each.envelope.type == kind]
    assert len(found) == count
    return found
