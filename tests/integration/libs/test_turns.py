"""A turn takes effect once, whatever is redelivered, lost or restarted."""

import asyncio
from collections.abc import Awaitable
from itertools import count

import pytest

from libs.errors import PoisonError, TransientError
from libs.service import Service, Turn
from schemas.base import Envelope
from tests.support.eventually import eventually
from tests.support.shell_services import QUEUED, SUBMITTED, a_queued, admission, gateway, submitted, wish
from tests.support.shell_worlds import Heard, World


async def test_a_fact_takes_effect_and_is_answered(world: World) -> None:
    async with world.running(sayer := gateway(world), admission(world)):
        await wish(sayer, "one")
        await eventually(lambda: _equal(world.effects("gateway"), ["one"]))
    assert await world.effects("admission") == ["one"]
    assert await world.kinds("WORKLOAD") == [f"{SUBMITTED} one", f"{QUEUED} one"]


async def test_an_answer_names_what_it_answers_and_who_says_it(world: World) -> None:
    question = submitted("one")
    async with world.running(admission(world)):
        await world.say(question)
        await eventually(lambda: _equal(world.effects("admission"), ["one"]))
        _, answer = await eventually(lambda: _when_there(world, 2))
    told = (answer.envelope.cause, answer.envelope.source, answer.envelope.version, answer.envelope.data)
    assert told == (question.id, "admission", 1, a_queued(question.data))


async def test_a_fact_that_is_said_twice_takes_effect_once(world: World) -> None:
    async with world.running(admission(world)):
        await world.say(submitted("one"))
        await world.say(submitted("one"), time=2)
        await world.say(submitted("one"), submitted("two"), time=3)
        await eventually(lambda: _equal(world.effects("admission"), ["one", "two"]))


async def test_a_fact_that_is_said_again_is_answered_again_under_the_same_id(world: World) -> None:
    times = count(2)
    async with world.running(admission(world, sweep_seconds=0.2)):
        await world.say(submitted("one"))
        await eventually(lambda: _when_there(world, 2))
        first, again = await eventually(lambda: _answered_twice(world, times))
    assert first.envelope == again.envelope
    assert [each.headers["Nats-Msg-Id"].rpartition(".")[2] for each in (first, again)] == ["1", "2"]
    assert await world.effects("admission") == ["one"]


async def test_facts_of_one_service_keep_their_order(world: World) -> None:
    names = [f"job-{number:03}" for number in range(450)]
    async with world.running(sayer := gateway(world), admission(world)):
        for start in range(0, 450, 150):
            await wish(sayer, *names[start : start + 150])
        await eventually(lambda: _equal(world.effects("gateway"), names), seconds=60)
    assert await world.effects("admission") == names


async def test_what_a_turn_said_before_it_failed_is_never_said(world: World) -> None:
    service = gateway(world)
    async with world.running(service):
        with pytest.raises(TransientError):
            await _fail_halfway(world, service)
        await wish(service, "whole")
        await eventually(lambda: _equal(world.kinds("WORKLOAD"), [f"{SUBMITTED} whole"]))
    assert await world.effects("gateway") == []


async def test_poison_is_set_aside_alone_and_with_its_reason(world: World) -> None:
    async def react(_: Turn, heard: Envelope) -> None:
        if heard.key == "bad":
            raise PoisonError("a queue named\nbad")

    async with world.running(admission(world, react)):
        await world.say(submitted("one"), submitted("bad"), submitted("two"))
        (letter,) = await eventually(lambda: world.stored("DEAD"))
        await eventually(lambda: _equal(world.effects("admission"), ["one", "two"]))
    assert letter.subject == "dead.admission.admission-workload"
    assert letter.envelope == submitted("bad")
    assert _told(letter.headers) == {
        "Triplane-Kind": "poison",
        "Triplane-Reason": "a queue named bad",
        "Triplane-Subject": "workload.request.submitted.v1.acme",
        "Triplane-Durable": "admission-workload",
        "Triplane-Attempt": "1",
    }


async def test_poison_that_is_said_again_is_not_buried_twice(world: World) -> None:
    async def react(_: Turn, heard: Envelope) -> None:
        if heard.key == "bad":
            raise PoisonError("bad")

    async with world.running(admission(world, react)):
        await world.say(submitted("bad"))
        await eventually(lambda: world.stored("DEAD"))
        await world.say(submitted("bad"), time=2)
        await world.say(submitted("good"))
        await eventually(lambda: _equal(world.effects("admission"), ["good"]))
    assert len(await world.stored("DEAD")) == 1


async def test_bytes_that_are_no_fact_are_set_aside_alone(world: World) -> None:
    async with world.running(admission(world)):
        await world.say_raw("WORKLOAD", f"{SUBMITTED}.acme.junk", b"{junk", "junk.1")
        await world.say(submitted("one"))
        (letter,) = await eventually(lambda: world.stored("DEAD"))
        await eventually(lambda: _equal(world.effects("admission"), ["one"]))
    assert (letter.body, letter.headers["Triplane-Kind"]) == (b"{junk", "undecodable")


async def test_the_transient_is_delivered_again_and_its_neighbours_go_on(world: World) -> None:
    tries: list[str] = []

    async def react(_: Turn, heard: Envelope) -> None:
        tries.append(heard.key)
        if heard.key == "later" and tries.count("later") < 3:
            raise TransientError("not yet")

    async with world.running(admission(world, react)):
        await world.say(submitted("later"), submitted("now"))
        await eventually(lambda: _equal(world.effects("admission"), ["now", "later"]))
        assert await world.stored("DEAD") == []


async def test_a_defect_ends_the_service_after_its_neighbours_took_effect(world: World) -> None:
    async def react(_: Turn, heard: Envelope) -> None:
        assert heard.key != "bad", "this cannot be"

    service = admission(world, react)
    running = asyncio.ensure_future(service.run())
    await eventually(lambda: service.ready)
    await world.say(submitted("one"), submitted("bad"), submitted("two"))
    with pytest.raises(AssertionError, match="this cannot be"):
        await asyncio.wait_for(running, 30)
    assert await world.effects("admission") == ["one", "two"]


async def test_a_loop_that_breaks_ends_the_service(world: World) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    service = gateway(world)
    service.loop("broken", broken, every=60)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(service.run(), 30)
    assert not service.ready


async def test_a_service_that_stops_says_what_it_has_committed(world: World) -> None:
    names = [f"job-{number}" for number in range(300)]
    service = gateway(world)
    async with world.running(service):
        await wish(service, *names)
    assert await world.kinds("WORKLOAD") == [f"{SUBMITTED} {name}" for name in names]


async def _fail_halfway(world: World, service: Service) -> None:
    async with service.turn() as turn:
        await world.effect(turn, "half")
        turn.emit(submitted("half").data, scope="acme", key="half", version=1)
        raise TransientError("no")


async def _equal(actual: Awaitable[list[str]], expected: list[str]) -> bool:
    found = await actual
    assert found == expected
    return True


async def _when_there(world: World, count: int) -> list[Heard]:
    found = await world.stored("WORKLOAD")
    assert len(found) == count
    return found


async def _answered_twice(world: World, times: "count[int]") -> list[Heard]:
    """Ask again until the quiet time of the answer is over."""
    await world.say(submitted("one"), time=next(times))
    answers = [each for each in await world.stored("WORKLOAD") if each.envelope.type == QUEUED]
    assert len(answers) > 1
    return answers[:2]


def _told(headers: dict[str, str]) -> dict[str, str]:
    others = {"Triplane-Origin", "Nats-Msg-Id", "Nats-Expected-Stream"}
    return {name: value for name, value in headers.items() if name not in others}
