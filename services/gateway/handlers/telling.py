"""What the gateway tells of its requests: how long each route takes, and one span a wish, below its asker's own."""

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.telemetry.telemetry import Telemetry
from libs.telemetry.traces import Activity, Kind

_WISHES: Final = ("DELETE", "PATCH", "POST", "PUT")
_METHODS: Final = frozenset({*_WISHES, "GET", "HEAD", "OPTIONS"})
_NO_ROUTE: Final = "none"


class Telling:
    """Tells of the requests of an application."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._tracer = telemetry.tracer
        self._meters = telemetry.meters
        self._seconds = telemetry.meters.metrics.histogram(
            "triplane_http_request_seconds", "To the first byte of the answer.", ("method", "route", "status")
        )

    def of(self, application: ASGIApp) -> ASGIApp:
        """Return the application, told of."""

        async def told_of(scope: Scope, receive: Receive, send: Send) -> None:
            await self._meters.spending("requests", self._serve(application, scope, receive, send))

        return told_of

    async def _serve(self, application: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        began = time.perf_counter()

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                method, route = _names(scope)
                self._seconds.labels(method, route, f"{message['status'] // 100}xx").observe(
                    time.perf_counter() - began
                )
            await send(message)

        with self._activity(scope) as doing:
            await application(scope, receive, told)
            if doing is not None:
                doing.name = " ".join(_names(scope))

    def _activity(self, scope: Scope) -> AbstractContextManager[Activity | None]:
        """Reading leads to nothing, so only wishes are spans."""
        if scope["method"] not in _WISHES:
            return nullcontext()
        return self._tracer.activity("request", Kind.SERVER, parent=_traceparent(scope["headers"]))


def _names(scope: Scope) -> tuple[str, str]:
    """Return method and route: the pattern, never the address that was asked for."""
    route = getattr(scope.get("route"), "path", None)
    method = scope["method"] if scope["method"] in _METHODS else "any"  # a client may make up any word
    return (method, route) if route else ("any", _NO_ROUTE)


def _traceparent(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    return next((value.decode("latin-1") for name, value in headers if name == b"traceparent"), None)
