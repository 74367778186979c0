"""Questions as bytes."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from libs.errors import PoisonError

Q = TypeVar("Q", bound=BaseModel)


def question(kind: type[Q], body: bytes) -> Q:
    """Return the question that a body holds. Raises PoisonError."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise PoisonError(f"not a {kind.__name__}: {error.error_count()} faults") from error
