"""The stream of events: live, resumed, filtered, beating, and bounded."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx

from schemas.base import Envelope
from tests.support.builders import a_job_id
from tests.support.builders_gateway import a_node, admitted, discovered, queued, said
from tests.support.eventually import eventually
from tests.support.gateways import ADMIN, Asking, a_job, gateway
from tests.support.servers import Servers

JOB, OTHER = a_job_id(), a_job_id("other")


async def entries(stream: httpx.Response) -> AsyncGenerator[dict[str, str]]:
    """Yield the entries of a stream: id, event and data; a comment comes under the empty name."""
    entry: dict[str, str] = {}
    async for text in stream.aiter_lines():
        if not text:
            yield entry
            entry = {}
        else:
            name, _, value = text.partition(":")
            entry[name] = value.strip()


async def first(stream: httpx.Response, count: int) -> list[dict[str, str]]:
    """Return so many entries that are no beat."""
    found = []
    async with aclosing(entries(stream)) as all_of_them:
        async for entry in all_of_them:
            if "event" in entry:
                found.append(entry)
            if len(found) == count:
                break
    return found


def a_life(count: int, name: str = "train") -> list[Envelope]:
    return [said(queued(name), key=a_job_id(name), version=version) for version in range(1, count + 1)]


async def until_logged(asking: Asking, count: int) -> None:
    async def look() -> bool:
        async with asking.admin.stream("GET", "/v1/events", params={"after": 0}) as stream:
            return len(await first(stream, count)) == count

    await eventually(look)


async def test_new_events_come_as_they_are_heard(asking: Asking) -> None:
    async with asking.admin.stream("GET", "/v1/events") as stream:
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        await asking.line.say(*a_life(2))
        one, two = await first(stream, 2)
    assert (one["event"], int(two["id"]) - int(one["id"])) == ("workload.job.queued.v1", 1)
    assert [json.loads(entry["data"])["entityversion"] for entry in (one, two)] == [1, 2]


async def test_a_reader_that_comes_back_says_its_last_id_and_misses_nothing(asking: Asking) -> None:
    await asking.line.say(*a_life(5))
    await until_logged(asking, 5)
    async with asking.admin.stream("GET", "/v1/events", params={"after": 0}) as stream:
        seen = await first(stream, 2)
    async with asking.admin.stream("GET", "/v1/events", headers={"Last-Event-ID": seen[-1]["id"]}) as stream:
        await asking.line.say(*a_life(2, "other"))
        seen += await first(stream, 5)
    ids = [int(entry["id"]) for entry in seen]
    assert ids == list(range(ids[0], ids[0] + 7))


async def test_events_are_filtered_by_job_and_type(asking: Asking) -> None:
    await asking.submit(a_job() + "---\n" + a_job("other"))
    query = {"job": "other", "type": "workload.job.admitted"}
    async with asking.admin.stream("GET", "/v1/events", params=query) as stream:
        await asking.line.say(
            discovered(a_node()),
            said(admitted(), key=JOB, version=1),
            said(queued("other"), key=OTHER, version=1),
            said(admitted("other"), key=OTHER, version=2),
        )
        (entry,) = await first(stream, 1)
    assert (entry["event"], OTHER in entry["data"]) == ("workload.job.admitted.v1", True)


async def test_an_idle_stream_beats(servers: Servers) -> None:
    async with (
        gateway(servers, beat_seconds=0.1) as asking,
        asking.admin.stream("GET", "/v1/events") as stream,
        aclosing(entries(stream)) as all_of_them,
    ):
        beats = [await anext(all_of_them) for _ in range(3)]
    assert beats == [{"": "beat"}] * 3


async def test_a_reader_that_takes_nothing_is_cut_and_the_others_go_on(servers: Servers) -> None:
    async with gateway(servers, stuck_seconds=0.5, stream_buffer=600, streams=2) as asking:
        host, _, port = asking.address.removeprefix("http://").partition(":")
        slow = socket.create_connection((host, int(port)))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
        slow.sendall(f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n".encode())
        async with asking.admin.stream("GET", "/v1/events") as stream:
            reading = asyncio.ensure_future(first(stream, 10))
            for batch in range(120):  # more than the kernel keeps for a connection
                await asking.line.say(*(said(queued(), key=JOB, version=batch * 100 + n) for n in range(100)))
            assert len(await reading) == 10

        async def has_room_for_two() -> bool:
            async with asking.admin.stream("GET", "/v1/events") as one, asking.admin.stream("GET", "/v1/events") as two:
                return (one.status_code, two.status_code) == (200, 200)

        assert await eventually(has_room_for_two)
        slow.close()


async def test_too_many_streams_are_refused(servers: Servers) -> None:
    async with gateway(servers, streams=1) as asking, asking.admin.stream("GET", "/v1/events"):
        answer = await asking.admin.get("/v1/events")
    assert (answer.status_code, answer.json()["detail"]) == (503, "too many event streams are open")


async def test_a_reader_that_left_frees_its_place(servers: Servers) -> None:
    async with gateway(servers, streams=1) as asking:
        async with asking.admin.stream("GET", "/v1/events"):
            pass

        async def again() -> bool:
            async with asking.admin.stream("GET", "/v1/events") as stream:
                return stream.status_code == 200

        assert await eventually(again)


async def test_what_is_not_kept_any_more_is_told_as_a_gap(servers: Servers) -> None:
    async with gateway(servers, events_kept=2) as asking:
        await asking.line.say(*a_life(6))
        await until_logged(asking, 6)
    async with gateway(servers, events_kept=2) as asking:

        async def look() -> bool:
            async with asking.admin.stream("GET", "/v1/events", headers={"Last-Event-ID": "1"}) as stream:
                (entry,) = await first(stream, 1)
            return entry == {"event": "gap", "data": '{"first":5}'}

        assert await eventually(look)


async def test_a_place_that_the_log_never_had_is_told_as_a_gap(asking: Asking) -> None:
    await asking.line.say(*a_life(2))
    await until_logged(asking, 2)

    async def look() -> bool:
        async with asking.admin.stream("GET", "/v1/events", headers={"Last-Event-ID": "1000000"}) as stream:
            (entry,) = await first(stream, 1)
        return entry["event"] == "gap"

    assert await eventually(look)
