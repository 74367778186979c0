"""The hello."""

from typing import Final

from libs.errors import UnavailableError
from libs.questions import answer
from libs.service import Service
from schemas.calls import Hello, HelloAnswer

HELLO: Final = "call.grant.hello"
HELLO_SECONDS: Final = 5.0
HELLO_ROUNDS: Final = 5  # one is usual, two after a reboot


async def greet(service: Service, hello: Hello) -> HelloAnswer:
    """Say hello until the ledger has taken this boot, and return its answer. Raises UnavailableError."""
    for _ in range(HELLO_ROUNDS):
        said = answer(HelloAnswer, await service.call(HELLO, hello, timeout=HELLO_SECONDS), HELLO)
        if said.boots is None:
            return said
        hello = hello.model_copy(update={"boots": said.boots})
    raise UnavailableError(f"the ledger hears of ever new boots of {hello.node}")
