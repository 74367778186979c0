"""Calls are answered in batches, after the commit; a refusal and an absence reach who asked."""

import asyncio
from collections.abc import Sequence

import pytest
from pydantic import BaseModel

from libs.bus.ports import BATCH
from libs.errors import PoisonError, RefusedError, TransientError, UnavailableError
from libs.service import Service, Turn
from tests.support.eventually import eventually
from tests.support.shell_worlds import World

SUBJECT = "call.audit.query"  # gateway asks, audit answers


class Text(BaseModel):
    """A question or an answer."""

    text: str


def answerer(world: World, taken: list[int]) -> Service:
    """Return a service that answers with an echo, and notes the sizes of its turns."""
    service = world.service("audit")

    async def answer(turn: Turn, questions: Sequence[bytes]) -> Sequence[Text]:
        taken.append(len(questions))
        texts = [Text.model_validate_json(question).text for question in questions]
        for text in texts:
            await _answer_one(world, turn, text)
        return [Text(text=text) for text in texts]

    service.answer(SUBJECT, answer)
    return service


async def _answer_one(world: World, turn: Turn, text: str) -> None:
    match text:
        case "refuse":
            raise RefusedError("NotAllowed", "not you")
        case "poison":
            raise PoisonError("what is this")
        case "later":
            raise TransientError("not now")
        case _:
            await world.effect(turn, text)


async def ask(service: Service, text: str, timeout: float = 30) -> str:
    """Return the echo."""
    return Text.model_validate_json(await service.call(SUBJECT, Text(text=text), timeout=timeout)).text


async def test_questions_that_arrive_together_are_answered_together_in_order_after_the_commit(world: World) -> None:
    taken: list[int] = []
    asker = world.service("gateway")
    async with world.running(asker, answerer(world, taken)):
        texts = [f"q{number}" for number in range(BATCH + 300)]
        answers = await asyncio.gather(*(ask(asker, text) for text in texts))
        assert answers == texts
        assert sorted(await world.effects("audit")) == sorted(texts)
    assert max(taken) <= BATCH
    assert len(taken) < 100


async def test_a_refusal_reaches_who_asked_and_its_neighbours_get_their_answers(world: World) -> None:
    asker = world.service("gateway")
    async with world.running(asker, answerer(world, [])):
        results = await asyncio.gather(
            *(ask(asker, text) for text in ("one", "refuse", "poison", "later", "two")), return_exceptions=True
        )
    told = [each if isinstance(each, str) else (type(each), str(each)) for each in results]
    assert told == [
        "one",
        (RefusedError, "not you"),
        (RefusedError, "what is this"),
        (UnavailableError, "not now"),
        "two",
    ]
    assert [each.reason for each in results if isinstance(each, RefusedError)] == ["NotAllowed", "Malformed"]
    assert sorted(await world.effects("audit")) == ["one", "two"]


async def test_a_call_that_nobody_answers_is_unavailable_at_once(world: World) -> None:
    asker = world.service("gateway")
    async with world.running(asker):
        with pytest.raises(UnavailableError):
            await asyncio.wait_for(ask(asker, "one", timeout=30), 30)


async def test_a_plain_answer_needs_no_turn(world: World) -> None:
    service, asker = world.service("audit"), world.service("gateway")

    async def answer(question: bytes) -> Text:
        text = Text.model_validate_json(question).text
        if text == "refuse":
            raise RefusedError("NotAllowed")
        return Text(text=text * 2)

    service.answer_plain(SUBJECT, answer)
    async with world.running(service, asker):
        assert await ask(asker, "ab") == "abab"
        with pytest.raises(RefusedError, match="NotAllowed"):
            await ask(asker, "refuse")


async def test_an_answerer_that_breaks_ends_its_service_and_tells_who_asked(world: World) -> None:
    service, asker = world.service("audit"), world.service("gateway")

    async def answer(_: Turn, questions: Sequence[bytes]) -> Sequence[Text]:
        raise ZeroDivisionError(len(questions))

    service.answer(SUBJECT, answer)
    async with world.running(asker):
        running = asyncio.ensure_future(service.run())
        await eventually(lambda: service.ready)
        with pytest.raises(RefusedError, match="ZeroDivisionError"):
            await ask(asker, "one")
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(running, 30)
