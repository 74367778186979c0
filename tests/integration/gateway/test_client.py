"""The two clients on a real gateway, and on what is none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

import pytest

from libs.client import calls
from libs.client.client import AsyncClient, Client
from libs.client.config import Access
from libs.client.errors import ProblemError, UnreachableError
from libs.client.models import Event, NewToken
from schemas.lifecycle import JobState
from tests.support.builders import a_job_id
from tests.support.builders_gateway import queued, said
from tests.support.gateways import ADMIN, Asking, a_job, free_port

STRANGER = "is no gateway of this version; check the address (a file)"


def access(asking: Asking, token: str = ADMIN) -> Access:
    return Access(asking.address, token, "the test")


async def test_both_clients_give_the_same_typed_answers(asking: Asking) -> None:
    with Client(access(asking)) as client:
        made = await asyncio.to_thread(client.ask, calls.submit(a_job().encode()))
        waiting = await asyncio.to_thread(client.ask, calls.job("train"))
    async with AsyncClient(access(asking)) as other:
        assert await other.ask(calls.job("train", tenant="acme")) == waiting
        page = await other.ask(calls.jobs(tenant="acme", limit=1))
    assert [result.outcome for result in made.results] == ["created"]
    assert (waiting.id, waiting.state, waiting.document["spec"]["queue"]) == (a_job_id(), JobState.QUEUED, "main")
    assert [job.id for job in page.items] == [a_job_id()]


async def test_a_no_is_an_error_with_its_problem(asking: Asking) -> None:
    async with AsyncClient(access(asking)) as client:
        with pytest.raises(ProblemError) as caught:
            await client.ask(calls.explain("no such job/at all?"))
        wanted = NewToken(name="ada", role="viewer", tenant="nobody")
        with pytest.raises(ProblemError, match="there is no tenant nobody; create it first"):
            await client.ask(calls.create_token(wanted))
    assert (caught.value.problem.status, caught.value.remedy) == (404, "see /openapi.json")


def first(client: Client, count: int) -> list[Event]:
    return list(islice(client.events(after=0), count))


async def test_events_come_typed_and_in_order(asking: Asking) -> None:
    facts = [said(queued(), key=a_job_id(), version=version) for version in (1, 2, 3)]
    await asking.line.say(*facts)
    with Client(access(asking)) as client:
        events = await asyncio.to_thread(first, client, 3)
    assert [event.fact["entityversion"] for event in events] == [1, 2, 3]
    assert {event.type for event in events} == {"workload.job.queued.v1"}


@asynccontextmanager
async def something(answer: bytes) -> AsyncIterator[Access]:
    """Listen and give everybody this answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(serve, "127.0.0.1", port):
        yield Access(f"http://127.0.0.1:{port}", "secret", "a file")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            "is no gateway of this version; check the address (a file)",
        ),
        (
            b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno",
            "is no gateway of this version; check the address (a file)",
        ),
        (b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n", "is busy or starts anew; try again in a few seconds"),
        (b"nonsense\r\n\r\n", "the address is from a file"),
    ],
)
async def test_what_is_no_gateway_is_told_apart(answer: bytes, message: str) -> None:
    async with something(answer) as wrong, AsyncClient(wrong) as client:
        with pytest.raises(UnreachableError) as caught:
            await client.ask(calls.me())
    assert str(caught.value).endswith(message)
    assert "secret" not in str(caught.value)
