"""What becomes of questions that are answered together."""

import asyncio
from collections.abc import Sequence
from functools import partial

from pydantic import BaseModel

from libs.bus.calls import Answers
from libs.bus.memory_store import MemoryStore
from libs.bus.ports import UNAVAILABLE, Question
from libs.bus.turn import Turn
from libs.clock import ManualClock
from libs.errors import ConflictError


class Said(BaseModel):
    """An answer."""

    word: str


class Race:
    """A ledger in which somebody else is faster so many times."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.asked: list[int] = []

    async def answer(self, _: Turn, bodies: Sequence[bytes]) -> Sequence[BaseModel]:
        self.asked.append(len(bodies))
        if len(self.asked) <= self.lost:
            raise ConflictError("lock timeout")
        return [Said(word=body.decode()) for body in bodies]


async def answered(race: Race, count: int) -> list[str]:
    """Ask so many questions at once, and return what each was told."""
    told: dict[int, str] = {}

    def question(number: int) -> Question:
        async def reply(body: bytes) -> None:
            told[number] = body.decode()

        async def refuse(code: str, _: str) -> None:
            told[number] = code

        return Question(str(number).encode(), reply, refuse)

    answers = Answers("call.grant.claim", race.answer, MemoryStore("placement", ManualClock()).turn)
    for number in range(count):
        answers.take(question(number))
    running = asyncio.ensure_future(answers.run())
    await answers.idle()
    running.cancel()
    return [told[number] for number in range(count)]


async def test_who_has_gone_is_not_answered() -> None:
    race, told = Race(lost=0), asyncio.Event()

    async def reply(_: bytes) -> None:
        told.set()

    async def refuse(*_: str) -> None:
        raise AssertionError

    answers = Answers("call.grant.claim", race.answer, MemoryStore("placement", ManualClock()).turn)
    for awaited in (False, True, False):
        answers.take(Question(b"one", reply, refuse, None, partial(bool, awaited)))
    running = asyncio.ensure_future(answers.run())
    await answers.idle()
    running.cancel()
    assert (race.asked, told.is_set()) == ([1], True)


async def test_questions_that_lost_a_race_are_answered_together_in_the_next_turn() -> None:
    race = Race(lost=2)
    assert await answered(race, 3) == [f'{{"word":"{number}"}}' for number in range(3)]
    assert race.asked == [3, 3, 3]


async def test_questions_that_lose_every_race_are_refused_together_since_one_by_one_they_would_wait_longer() -> None:
    race = Race(lost=100)
    assert await answered(race, 50) == [UNAVAILABLE] * 50
    assert race.asked == [50] * 4
