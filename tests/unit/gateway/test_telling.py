from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from libs.telemetry.telemetry import unread
from services.gateway.handlers.documents import bounded_body
from services.gateway.handlers.problems import ProblemError
from services.gateway.handlers.telling import Telling


async def test_a_word_that_a_client_makes_up_for_a_method_is_no_series_of_its_own() -> None:
    async def answer(scope: Scope, _: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path="/v1/jobs")
        await send({"type": "http.response.start", "status": 405, "headers": []})
        await send({"type": "http.response.body"})

    telemetry = unread()
    transport = httpx.ASGITransport(Telling(telemetry).of(answer))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        for method in ("GET", "BREW", "M-SEARCH", "get-me-in"):
            await client.request(method, "/v1/jobs")
    counted = [
        line for line in (await telemetry.meters.metrics.text()).decode().splitlines() if "seconds_count" in line
    ]
    assert [(line.split('method="')[1].split('"')[0], line.rpartition(" ")[2]) for line in counted] == [
        ("GET", "1.0"),
        ("any", "3.0"),
    ]


async def test_who_leaves_while_the_text_is_on_its_way_is_no_failure_of_the_gateway() -> None:
    told: list[Message] = [{"type": "http.request", "body": b"api", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return told.pop(0)

    scope = {"type": "http", "method": "POST", "path": "/v1/documents", "headers": [], "app": Starlette()}
    with pytest.raises(ProblemError) as caught:
        await bounded_body(Request(scope, receive), 5)
    assert isinstance(caught.value.__cause__, ClientDisconnect)
    assert caught.value.problem.status == 400
