"""Something that a service opens when it starts and closes when it stops."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Resource(Generic[T]):
    """Something that is opened when the service starts and closed when it stops."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._opened: list[T] = []

    @property
    def value(self) -> T:
        """What was opened. Asserts that the service has started."""
        assert self._opened, f"{self._name} is not open"
        return self._opened[0]

    async def open(self, opened: Callable[[], Awaitable[T]]) -> None:
        """Open it and keep it."""
        self._opened = [await opened()]

    async def close(self, close: Callable[[T], Awaitable[None]]) -> None:
        """Close it, if it was ever opened."""
        while self._opened:
            await close(self._opened.pop())
