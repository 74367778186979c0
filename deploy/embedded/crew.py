"""Keeps services at work: inside this process by default, or each in a process of its own."""

import asyncio
import importlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from deploy.embedded import children
from deploy.embedded.failures import StackError
from deploy.embedded.patience import Patience
from deploy.embedded.posts import Post
from deploy.embedded.readiness import is_ready
from deploy.embedded.service_logs import at_post
from deploy.embedded.state import StateFolder
from deploy.embedded.waiting import ended
from libs.log import get_logger
from libs.service import Service

READY_SECONDS = 60.0  # all migrations on a slow disk
LOOK_SECONDS = 0.05
STOP_SECONDS = 20.0  # longer than a service drains; then it is cut
CODE = Path(__file__).parents[2]  # where `services` is found, installed or not
AGENT = "agent"
LEAVING = ("gateway", "", AGENT)  # no new wishes first; agents last, since the others ask them
log = get_logger(__name__)


class Seat(Protocol):
    """Somewhere a service works. `work` returns when it died and says why; cancelled, it ends the service well."""

    @property
    def post(self) -> Post:
        """Who works here."""

    async def work(self) -> str:
        """One life."""


class InsideSeat:
    """A service among the tasks of this process."""

    def __init__(self, post: Post) -> None:
        self.post = post

    async def work(self) -> str:
        """Build the service and let it run until it dies."""
        at_post.set(self.post.name)
        service = build(self.post)
        life = asyncio.create_task(service.run())
        try:
            await asyncio.wait({life})
        finally:
            service.end()
            await asyncio.wait({life}, timeout=STOP_SECONDS)
            life.cancel()
        return "it ended" if life.cancelled() else repr(life.exception())


class ApartSeat:
    """A service as `python -m services.<name>`."""

    def __init__(self, post: Post, folder: StateFolder) -> None:
        self.post = post
        self._folder = folder

    async def work(self) -> str:
        """Run the process until it ends."""
        try:
            child = children.spawn(self._folder, self.post.name, program_of(self.post))
        except OSError as error:  # the disk is full, or the machine out of processes
            return str(error)
        try:
            return f"exit code {await ended(child.process)}"
        finally:
            await children.end_child(child, STOP_SECONDS)


def build(post: Post) -> Service:
    """Make the service of a post from its own `build` and `Settings`."""
    app = importlib.import_module(f"services.{post.service}.app")
    settings = importlib.import_module(f"services.{post.service}.settings")
    service: Service = app.build(post.infrastructure, settings.Settings(**post.told))
    return service


def program_of(post: Post) -> children.Program:
    """Return how to run the service of a post in a process of its own."""
    arguments = [sys.executable, "-m", f"services.{post.service}"]
    return children.Program(arguments, environment={**os.environ, **post.environment()}, working_folder=CODE)


@asynccontextmanager
async def at_work(
    seats: Sequence[Seat],
    folder: StateFolder,
    *,
    ready_seconds: float = READY_SECONDS,
    introduce: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Have everybody at work and ready inside, and nobody afterwards. Raises StackError when one is not ready.

    Agents come when the others are ready and `introduce` has told these about the fleet.
    """
    tasks: dict[str, asyncio.Task[None]] = {}
    posts, agents = [seat.post for seat in seats], [seat for seat in seats if seat.post.service == AGENT]
    try:
        await _begin([seat for seat in seats if seat not in agents], tasks, folder, ready_seconds)
        if introduce:
            await introduce()
        await _begin(agents, tasks, folder, ready_seconds)
        yield
    finally:
        for group in LEAVING:
            await _leave([tasks[post.name] for post in posts if _leaves_with(post) == group and post.name in tasks])


async def _leave(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _begin(
    seats: Sequence[Seat], tasks: dict[str, "asyncio.Task[None]"], folder: StateFolder, seconds: float
) -> None:
    begun = {seat.post.name: asyncio.create_task(_keep(seat)) for seat in seats}
    tasks.update(begun)
    deadline, waiting = time.monotonic() + seconds, [seat.post for seat in seats]
    while waiting:
        _expect_built(begun)
        if time.monotonic() > deadline:
            raise StackError(_complaint(waiting, folder, seconds))
        await asyncio.sleep(LOOK_SECONDS)
        waiting = [post for post, ready in zip(waiting, await _ask(waiting), strict=True) if not ready]


def _expect_built(tasks: Mapping[str, "asyncio.Task[None]"]) -> None:
    for name, task in tasks.items():
        if task.done() and not task.cancelled():
            raise StackError(f"{name} cannot be built: {task.exception()}")


def _leaves_with(post: Post) -> str:
    return post.service if post.service in LEAVING else ""


async def _keep(seat: Seat) -> None:
    patience = Patience()
    while True:
        born = time.monotonic()
        why = await seat.work()
        patience = patience.after_death(time.monotonic() - born)
        log.error("a service died", post=seat.post.name, why=why, again_in_seconds=patience.delay_seconds)
        await asyncio.sleep(patience.delay_seconds)


def _complaint(late: Iterable[Post], folder: StateFolder, seconds: float) -> str:
    ends = [f"{post.name}: {folder.end_of_log(post.name)}" for post in late]
    return "\n".join([f"Not ready within {seconds:g} s. The ends of their logs:", *ends])


async def _ask(posts: Iterable[Post]) -> list[bool]:
    return await asyncio.gather(*(is_ready(post.port) for post in posts))


def seats(posts: Iterable[Post], folder: StateFolder, *, apart: bool) -> list[Seat]:
    """Give every post its seat."""
    make: Callable[[Post], Seat] = (lambda post: ApartSeat(post, folder)) if apart else InsideSeat
    return [make(post) for post in posts]
