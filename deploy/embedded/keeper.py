"""Keeps one server alive: started, looked at, started again on the same port when it dies."""

import asyncio
import time

from deploy.embedded import children
from deploy.embedded.children import Child
from deploy.embedded.failures import StackError
from deploy.embedded.files import LogReader
from deploy.embedded.patience import Patience
from deploy.embedded.room import has_room
from deploy.embedded.servers.base import Server
from deploy.embedded.state import StateFolder
from deploy.embedded.waiting import ended
from libs.log import get_logger

START_SECONDS = 60.0  # crash recovery of a large ledger included
LOOK_SECONDS = 0.03  # between two looks at a server that starts
STUCK_SECONDS = 2.0  # between two looks whether a server is stuck
log = get_logger(__name__)


class Keeper:
    """Owns the process of one server. All its methods belong to one thread."""

    def __init__(self, folder: StateFolder, server: Server) -> None:
        self.server = server
        self._folder = folder
        self._child: Child | None = None
        self._born = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether the process runs now."""
        return self._child is not None and self._child.is_alive

    async def start(self) -> None:
        """Start the server and wait until it answers and is furnished. Raises StackError with the end of its log."""
        if not self.is_alive:
            await self.server.prepare()
            self._child = children.spawn(self._folder, self.server.name, self.server.program())
            self._born = time.monotonic()
        await self._wait_until_it_answers()
        await self.server.furnish()

    async def stop(self) -> None:
        """End the process with its own signal, at the latest after GRACE_SECONDS by force."""
        if self._child is not None:
            await children.end_child(self._child, children.GRACE_SECONDS)

    def kill(self) -> None:
        """End the process as a crash would."""
        if self._child is not None:
            self._child.kill()

    async def keep(self) -> None:
        """Start it again whenever it dies, for ever. Raises StackError when it dies too often in a row."""
        patience = Patience()
        while True:
            if self._child is not None:
                await self._end_of(self._child)
            full = not has_room(self._folder.root)  # what it dies of is then not its own
            patience = patience.after_death(time.monotonic() - self._born, excused=full)
            if patience.is_spent:
                raise StackError(self._complaint("died too often"))
            log.error("a server died", server=self.server.name, again_in_seconds=patience.delay_seconds)
            await asyncio.sleep(patience.delay_seconds)
            await self._try_again()

    async def _end_of(self, child: Child) -> None:
        """Wait until it has ended; end it when it is stuck."""
        watch = asyncio.create_task(self._end_when_stuck(child))
        try:
            await ended(child.process)
        finally:
            watch.cancel()

    async def _end_when_stuck(self, child: Child) -> None:
        words, reader = self.server.stuck_words, LogReader(self._folder.log_file(self.server.name))
        while words:
            await asyncio.sleep(STUCK_SECONDS)
            if reader.has_new(words) and has_room(self._folder.root):
                log.error("a server is stuck and started again", server=self.server.name)
                child.kill()
                return

    async def _try_again(self) -> None:
        try:
            await self.start()
        except (StackError, OSError):  # OSError: its folder may be gone, or the machine out of processes
            await self.stop()  # its death is counted by `keep`

    async def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not await self.server.answers():
            if not self.is_alive:
                raise StackError(self._complaint("ended at its start"))
            if time.monotonic() > deadline:
                raise StackError(self._complaint(f"did not answer within {START_SECONDS:.0f} s"))
            await asyncio.sleep(LOOK_SECONDS)

    def _complaint(self, what: str) -> str:
        log = self._folder.log_file(self.server.name)
        return f"{self.server.name} {what}. The end of {log}:\n{self._folder.end_of_log(self.server.name)}"
