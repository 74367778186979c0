"""Answers as bytes, and the hello."""

from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from libs.errors import UnavailableError
from libs.service import Service
from schemas.calls import Hello, HelloAnswer

Q = TypeVar("Q", bound=BaseModel)
HELLO_SECONDS: Final = 5.0
HELLO_ROUNDS: Final = 5  # one is usual, two after a reboot


def answer(kind: type[Q], body: bytes) -> Q:
    """Return the answer in these bytes; one that cannot be read is none. Raises UnavailableError."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise UnavailableError(f"an answer that is not a {kind.__name__}") from error


async def greet(service: Service, hello: Hello) -> HelloAnswer:
    """Say hello until the ledger has taken this boot, and return its answer. Raises UnavailableError."""
    for _ in range(HELLO_ROUNDS):
        said = answer(HelloAnswer, await service.call("call.grant.hello", hello, timeout=HELLO_SECONDS))
        if said.boots is None:
            return said
        hello = hello.model_copy(update={"boots": said.boots})
    raise UnavailableError(f"the ledger hears of ever new boots of {hello.node}")
