"""Questions and answers as bytes."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from libs.errors import PoisonError, UnavailableError

Q = TypeVar("Q", bound=BaseModel)


def question(kind: type[Q], body: bytes) -> Q:
    """Return the question that a body holds. Raises PoisonError."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise PoisonError(f"not a {kind.__name__}: {error.error_count()} faults") from error


def answer(kind: type[Q], body: bytes, subject: str) -> Q:
    """Return the answer that a body holds; one that cannot be read is none. Raises UnavailableError."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise UnavailableError(f"what {subject} says is no {kind.__name__}") from error
