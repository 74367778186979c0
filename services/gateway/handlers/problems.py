"""Errors as people and programs read them: RFC 9457, each with what mends it."""

from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from libs.client.models import Problem
from libs.errors import PoisonError, RefusedError, TransientError, TriplaneError
from libs.log import get_logger
from schemas.spec.parse import field_path

MEDIA_TYPE: Final = "application/problem+json"
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {"default": {"model": Problem, "description": "What went wrong."}}
_PREFIX: Final = "urn:triplane:problem:"
log = get_logger(__name__)


class ProblemError(TriplaneError):
    """Ends a request with this problem."""

    def __init__(
        self, status: int, kind: str, detail: str, *, field: str | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(detail)
        title = kind.replace("-", " ").capitalize()
        self.problem = Problem(
            type=f"{_PREFIX}{kind}", title=title, status=status, detail=detail, field=field, remedy=remedy
        )


def not_found(what: str, remedy: str) -> ProblemError:
    """Return the problem of something that is not there, or not this asker's to see: the two look the same."""
    return ProblemError(404, "not-found", f"there is no {what}", remedy=remedy)


def denied(detail: str, remedy: str) -> ProblemError:
    """Return the problem of an asker who may not do that."""
    return ProblemError(403, "denied", detail, remedy=remedy)


def conflict(detail: str, remedy: str) -> ProblemError:
    """Return the problem of a wish that the present state does not allow."""
    return ProblemError(409, "conflict", detail, remedy=remedy)


def unavailable(detail: str) -> ProblemError:
    """Return the problem of something that does not answer now."""
    return ProblemError(503, "unavailable", detail, remedy="try again in a few seconds")


def register(api: FastAPI) -> None:
    """Let every error leave as a problem."""
    api.add_exception_handler(ProblemError, _known)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _http)
    api.add_exception_handler(TransientError, _transient)
    api.add_exception_handler(RefusedError, _refused)
    api.add_exception_handler(PoisonError, _poison)
    api.add_exception_handler(Exception, _defect)


def response(problem: Problem) -> JSONResponse:
    """Return the HTTP answer of a problem."""
    headers = {"Retry-After": "2"} if problem.status == 503 else {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(problem.model_dump(), problem.status, headers=headers, media_type=MEDIA_TYPE)


async def _known(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProblemError)
    return response(error.problem)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = "" if first["type"] == "json_invalid" else field_path(tuple(first["loc"][1:]))  # there it is a place
    problem = ProblemError(
        422, "bad-input", first["msg"], field=field or None, remedy="see /openapi.json for what is taken"
    )
    return response(problem.problem)


async def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    kind = {404: "not-found", 405: "not-allowed"}.get(error.status_code, "refused")
    return response(ProblemError(error.status_code, kind, str(error.detail), remedy="see /openapi.json").problem)


async def _transient(_: Request, error: Exception) -> JSONResponse:
    return response(unavailable(str(error)).problem)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RefusedError)
    return response(ProblemError(502, "refused", f"{error.reason}: {error}").problem)


async def _poison(_: Request, error: Exception) -> JSONResponse:
    return response(ProblemError(422, "bad-input", str(error), remedy="see /openapi.json for what is taken").problem)


async def _defect(request: Request, error: Exception) -> JSONResponse:
    log.error("a request failed", error=error, path=request.url.path)
    detail = "the gateway failed on this request; its log says why"
    return response(ProblemError(500, "defect", detail, remedy="tell whoever runs the gateway").problem)
