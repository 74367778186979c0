"""Values read from JSON that are read again and again: the same text gives the same frozen value, without a parse."""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def remembered(model: type[M], *, texts: int = 1_000) -> Callable[[str], M]:
    """Return a reader of a frozen model that keeps what it read of the latest texts. It raises as the model does."""
    assert model.model_config.get("frozen"), f"{model.__name__} may be changed by who gets it"
    return lru_cache(texts)(model.model_validate_json)
