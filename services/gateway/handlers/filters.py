"""What lists are narrowed by: texts of people, none of them blank."""

from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator, StringConstraints
from pydantic_core import PydanticCustomError


def _visible(text: str) -> str:
    if all(letter.isspace() or not letter.isprintable() for letter in text):
        raise PydanticCustomError("blank", "a filter needs a character that can be seen")
    return text


Filter = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(_visible)]
"""A name or an id. One that nobody can see is no wish for everything, nor for nothing."""
Prefix = Annotated[str, StringConstraints(min_length=1, max_length=128), AfterValidator(_visible)]
"""How types of facts begin."""
Tenant = Annotated[Filter | None, Query(description="Only this tenant.")]
