"""Looks at all processes of a node, each for everybody who asked before it began: a look is dear, and many ask."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from services.agent.store.holders import Scan
from services.agent.store.node import Node

T = TypeVar("T")


class Shared(Generic[T]):
    """One costly look, shared. ``look`` runs in a thread of its own and must not raise."""

    def __init__(self, look: Callable[[], T], name: str) -> None:
        self._look = look
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._next: asyncio.Task[T] | None = None
        self._last: asyncio.Task[T] | None = None

    async def fresh(self) -> T:
        """Return what a look sees that begins after this call."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._after(self._last))
        return await asyncio.shield(self._next)

    async def _after(self, before: "asyncio.Task[T] | None") -> T:
        if before is not None:
            await asyncio.wait({before})
        self._last, self._next = self._next, None  # who asks from now on waits for another
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._look)


class Looks:
    """The looks that starts and seals share."""

    def __init__(self, node: Node) -> None:
        self._holders = Shared(node.locks.glance, "holders")
        self._marked = Shared(node.marked, "marked")

    async def holders(self) -> Scan | None:
        """Return who holds any device; None when that cannot be seen."""
        return await self._holders.fresh()

    async def marked(self) -> Mapping[str, Sequence[int]] | None:
        """Return who belongs to any grant, by mark; None when the processes cannot be listed."""
        return await self._marked.fresh()
