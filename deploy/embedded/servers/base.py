"""What each server tells the one who runs it."""

from typing import Protocol

from deploy.embedded.children import Program


class Server(Protocol):
    """A server on one loopback port. Its files live in the state directory and survive it."""

    @property
    def name(self) -> str:
        """Names its folder, its log and its record."""

    @property
    def port(self) -> int:
        """Its port on 127.0.0.1, the same in every life."""

    @property
    def stuck_words(self) -> bytes:
        """What it logs when only a restart helps; empty: nothing."""

    async def prepare(self) -> None:
        """Write what it reads at its start. Safe to repeat. Raises StackError."""

    def program(self) -> Program:
        """What to run."""

    async def answers(self) -> bool:
        """Return whether it serves a user that has a password, now."""

    async def furnish(self) -> None:
        """Make inside it what others expect there (roles, a database). Safe to repeat. Raises StackError."""
