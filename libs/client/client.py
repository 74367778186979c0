"""Two clients of the gateway, one that waits and one for event loops. Both send the calls of ``libs.client.calls``."""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx
from pydantic import ValidationError
from pydantic_core import from_json

from libs.client.calls import Call
from libs.client.config import Access
from libs.client.errors import ProblemError, UnreachableError
from libs.client.models import Event, Problem

T = TypeVar("T")
TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)
_STREAM: Final = httpx.Timeout(60.0, connect=5.0)  # four beats of silence
_AWAY: Final = (502, 503, 504)


class Client:
    """Asks and waits for the answer. Raises UnreachableError and ProblemError."""

    def __init__(self, access: Access, transport: httpx.BaseTransport | None = None) -> None:
        self._access = access
        self._http = httpx.Client(
            base_url=access.address, headers=_headers(access), timeout=TIMEOUT, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, call: Call[T]) -> T:
        """Send a call and return its answer."""
        try:
            answer = self._http.request(call.method, call.path, **_arguments(call))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _unreachable(self._access, error) from error
        return _read(call, answer, self._access)

    def events(
        self,
        *,
        tenant: str | None = None,
        job: str | None = None,
        type_prefix: str | None = None,
        after: int | None = None,
    ) -> Iterator[Event]:
        """Yield facts as they come, from behind ``after``, until the stream ends. Come back with the last position."""
        asked = {"type": type_prefix, "tenant": tenant, "job": job, "after": after}
        query = {name: value for name, value in asked.items() if value is not None}
        try:
            with self._http.stream("GET", "/v1/events", params=query, timeout=_STREAM) as answer:
                if answer.is_error:
                    answer.read()
                    raise _failure(answer, self._access)
                yield from _events(answer.iter_lines())
        except httpx.HTTPError as error:
            raise _unreachable(self._access, error) from error


class AsyncClient:
    """The same for event loops."""

    def __init__(self, access: Access, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._access = access
        self._http = httpx.AsyncClient(
            base_url=access.address, headers=_headers(access), timeout=TIMEOUT, transport=transport
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def ask(self, call: Call[T]) -> T:
        """Send a call and return its answer."""
        try:
            answer = await self._http.request(call.method, call.path, **_arguments(call))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _unreachable(self._access, error) from error
        return _read(call, answer, self._access)


def _headers(access: Access) -> dict[str, str]:
    trace = {"traceparent": access.traceparent} if access.traceparent else {}
    return {"Authorization": f"Bearer {access.token}", "Accept": "application/json", **trace}


def _arguments(call: Call[Any]) -> dict[str, Any]:
    if call.body is None:
        return {"params": call.query}
    return {"params": call.query, "content": call.body, "headers": {"Content-Type": call.media_type}}


def _read(call: Call[T], answer: httpx.Response, access: Access) -> T:
    if answer.is_error:
        raise _failure(answer, access)
    try:
        return call.answer.validate_json(answer.content)
    except ValidationError as error:
        raise _stranger(access) from error


def _failure(answer: httpx.Response, access: Access) -> ProblemError | UnreachableError:
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        return _busy(access) if answer.status_code in _AWAY else _stranger(access)
    if problem.status in _AWAY:
        return UnreachableError(problem.detail, problem.remedy or "try again in a few seconds")
    return ProblemError(problem)


def _busy(access: Access) -> UnreachableError:
    return UnreachableError(f"the gateway at {access.address} is busy or starts anew", "try again in a few seconds")


def _stranger(access: Access) -> UnreachableError:
    message = f"what answers at {access.address} is no gateway of this version"
    return UnreachableError(message, f"check the address ({access.source})")


def _unreachable(access: Access, error: Exception) -> UnreachableError:
    message = f"the gateway at {access.address} does not answer ({type(error).__name__})"
    return UnreachableError(message, f"is it up? see 'triplane status'; the address is from {access.source}")


def _events(lines: Iterator[str]) -> Iterator[Event]:
    """Yield the facts among the entries of a stream of events; beats and gaps are passed over."""
    entry: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            entry[name] = value.strip()
            continue
        if "id" in entry:
            yield Event(position=int(entry["id"]), type=entry["event"], fact=from_json(entry["data"]))
        entry = {}
