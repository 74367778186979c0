"""Calls: questions that arrive while a turn runs are answered together in the next, after its commit."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Final

from pydantic import BaseModel

from libs.bus.batch import caught, past_conflicts
from libs.bus.ports import BATCH, UNAVAILABLE, Question
from libs.bus.turn import Turn
from libs.errors import ConflictError, PoisonError, RefusedError, TransientError, UnavailableError
from libs.log import get_logger
from libs.telemetry.meters import call_of
from libs.telemetry.telemetry import Telemetry, unread
from libs.telemetry.traces import Kind

Answerer = Callable[[Turn, Sequence[bytes]], Awaitable[Sequence[BaseModel]]]
PlainAnswerer = Callable[[bytes], Awaitable[BaseModel]]

WAITING: Final = 10_000  # questions beyond are refused at once: who asks will ask again
AT_ONCE: Final = 100
MALFORMED: Final = "Malformed"
DEFECT: Final = "Defect"
log = get_logger(__name__)


class Answers:
    """Answers the questions of one subject, in batches, each batch in a turn."""

    def __init__(
        self,
        subject: str,
        answerer: Answerer,
        turn: Callable[[], AbstractAsyncContextManager[Turn]],
        *,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._subject = subject
        self._answerer = answerer
        self._turn = turn
        self._telemetry = telemetry or unread()
        self._waiting: asyncio.Queue[Question] = asyncio.Queue()
        self._refusing: set[asyncio.Future[None]] = set()

    def take(self, question: Question) -> None:
        """Let a question wait for the next turn."""
        if self._waiting.qsize() < WAITING:
            self._waiting.put_nowait(question)
            return
        refusing = asyncio.ensure_future(question.refuse(UNAVAILABLE, "too many questions wait"))
        self._refusing.add(refusing)
        refusing.add_done_callback(self._refusing.discard)

    async def run(self) -> None:
        """Answer for ever. Raises the answerer's defects, after the question that shows it was refused."""
        while True:
            questions = [await self._waiting.get()]
            while self._waiting.qsize() and len(questions) < BATCH:
                questions.append(self._waiting.get_nowait())
            try:
                awaited = [question for question in questions if question.awaited()]  # or late answers make more late
                await self._telemetry.meters.spending(f"answer {call_of(self._subject)}", self._answer(awaited))
            finally:
                for _ in questions:
                    self._waiting.task_done()

    async def idle(self) -> None:
        """Wait until every question that was taken is answered. Call it only while ``run`` runs."""
        await self._waiting.join()

    async def _answer(self, questions: Sequence[Question]) -> None:
        if not questions:
            return
        heard = (question.traceparent for question in questions)
        with _told(self._telemetry, self._subject, heard=heard):
            result = await past_conflicts(lambda: self._together(questions))
        if not isinstance(result, Exception):
            for question, answer in zip(questions, result, strict=True):
                await question.reply(answer)
        elif len(questions) == 1 or isinstance(
            result, UnavailableError | ConflictError
        ):  # apart they would wait longer
            for question in questions:
                await refuse(question, result, self._subject)
        else:
            for question in questions:
                await self._answer([question])

    async def _together(self, questions: Sequence[Question]) -> list[bytes]:
        async with self._turn() as turn:
            answers = await self._answerer(turn, [question.body for question in questions])
            assert len(answers) == len(questions), (self._subject, len(answers), len(questions))
            return [answer.model_dump_json().encode() for answer in answers]


class PlainAnswers:
    """Answers the questions of one subject without a turn, up to a hundred at once."""

    def __init__(self, subject: str, answerer: PlainAnswerer, *, telemetry: Telemetry | None = None) -> None:
        self._subject = subject
        self._answerer = answerer
        self._telemetry = telemetry or unread()
        self._running: set[asyncio.Task[None]] = set()
        self._failures: asyncio.Queue[Exception] = asyncio.Queue()
        self._places = asyncio.Semaphore(AT_ONCE)

    def take(self, question: Question) -> None:
        """Begin to answer a question."""
        meters = self._telemetry.meters
        task = asyncio.ensure_future(meters.spending(f"answer {call_of(self._subject)}", self._answer(question)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def run(self) -> None:
        """Wait for a defect of the answerer, and raise it."""
        raise await self._failures.get()

    async def idle(self) -> None:
        """Wait until every question that was taken is answered."""
        if self._running:
            await asyncio.wait(set(self._running))

    async def _answer(self, question: Question) -> None:
        if len(self._running) > WAITING:
            await question.refuse(UNAVAILABLE, "too many questions wait")
            return
        async with self._places:
            if not question.awaited():  # late answers would make more late
                return
            with _told(self._telemetry, self._subject, parent=question.traceparent):
                result = await caught(self._answerer(question.body))
        if not isinstance(result, Exception):
            await question.reply(result.model_dump_json().encode())
            return
        defect = await caught(refuse(question, result, self._subject))
        if isinstance(defect, Exception):
            self._failures.put_nowait(defect)


@contextmanager
def _told(
    telemetry: Telemetry, subject: str, *, heard: Iterable[str | None] = (), parent: str | None = None
) -> Iterator[None]:
    """Tell of an answer: one span and its time."""
    call, began = call_of(subject), time.perf_counter()
    with telemetry.tracer.activity(f"answer {call}", Kind.SERVER, heard=heard, parent=parent):
        yield
    telemetry.meters.answer_seconds.labels(call).observe(time.perf_counter() - began)


async def refuse(question: Question, error: Exception, subject: str) -> None:
    """Tell who asked why there is no answer. Raises a defect again, after it was told."""
    log.warning("no answer", error=error, subject=subject)
    match error:
        case RefusedError():
            await question.refuse(error.reason, str(error))
        case TransientError():
            await question.refuse(UNAVAILABLE, str(error))
        case PoisonError():
            await question.refuse(MALFORMED, str(error))
        case _:
            await question.refuse(DEFECT, type(error).__name__)
            raise error
