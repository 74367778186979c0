"""`up`: start everything in order, keep it alive, and take it down in the opposite order."""

import asyncio
import functools
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Never

import uvloop

from deploy.embedded import children, crew, fleet, ports, service_logs, staffing
from deploy.embedded.detached import BY_KEY
from deploy.embedded.failures import BadDocumentError
from deploy.embedded.files import write_private
from deploy.embedded.foundation import Foundation, lay
from deploy.embedded.gateway import access_of, address_of, declare, tell_clients
from deploy.embedded.logs import rotate_all
from deploy.embedded.posts import Post
from deploy.embedded.runtime import going_on
from deploy.embedded.servers import SERVERS
from deploy.embedded.settings import Settings
from deploy.embedded.state import StateFolder, held, open_state
from libs import garbage
from libs.client.client import AsyncClient
from libs.client.config import Access

Say = Callable[[str], None]
Assign = Callable[[Foundation, staffing.Staff, Mapping[str, int]], Sequence[Post]]


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for at the command line. ``replicas``: how many of a service, where it is not one."""

    state: Path
    fixed_ports: Mapping[str, int] = field(default_factory=dict)
    fleet: Path | None = None
    apart: bool = False
    servers_only: bool = False
    replicas: Mapping[str, int] = field(default_factory=dict)


def run(wish: Wish, settings: Settings, say: Say, assign: Assign = staffing.posts) -> None:
    """Be the stack until SIGINT or SIGTERM; everything is stopped when this returns. Raises StackError.

    ``assign`` decides what each post is told.
    """
    uvloop.run(_until_signal(up(wish, settings, say, assign)))
    if left := going_on(open_state(wish.state)):
        say(left)


async def up(wish: Wish, settings: Settings, say: Say, assign: Assign = staffing.posts) -> None:
    """Start the stack and stay until cancelled. Raises StackError when it cannot start or cannot be kept alive."""
    folder = open_state(wish.state)
    with held(folder):
        folder.ready_file.unlink(missing_ok=True)
        for name in await children.clear_leftovers(folder):
            say(f"Ended {name}, left over from a stack that was killed.")
        document = fleet.chosen(folder, wish.fleet)
        staff = _staff(wish, folder, document)
        chosen = ports.settle(folder, [*SERVERS, *staff.port_names()], wish.fixed_ports)
        foundation = lay(folder, settings, chosen)
        posts = assign(foundation, staff, chosen)
        service_logs.collect(folder)
        try:
            await foundation.start()
            rotation = rotate_all(folder.logs, settings.log_bytes, settings.log_look_seconds)
            work = _serve(foundation, crew.seats(posts, folder, apart=wish.apart), document, chosen, say)
            await _first_failure(foundation.keep(), rotation, work)
        finally:
            folder.ready_file.unlink(missing_ok=True)
            await foundation.stop()


def _staff(wish: Wish, folder: StateFolder, document: fleet.Fleet) -> staffing.Staff:
    return staffing.Staff() if wish.servers_only else staffing.wanted(folder, document.documents, wish.replicas)


async def _serve(
    foundation: Foundation, seats: Sequence[crew.Seat], document: fleet.Fleet, chosen: Mapping[str, int], say: Say
) -> None:
    """Have the services at work until cancelled."""
    folder = foundation.folder
    if not seats:
        await _stay(folder, f"nats://127.0.0.1:{foundation.nats.port}", say)
    access = access_of(address_of(chosen), foundation.credentials.admin_token)
    async with crew.at_work(seats, folder, introduce=functools.partial(_introduce, folder, access, document)):
        tell_clients(folder, access)
        garbage.look_seldom()
        await _stay(folder, access.address, say)


async def _introduce(folder: StateFolder, access: Access, document: fleet.Fleet) -> None:
    """Tell the services about the fleet, the same way a person would; what they take is kept for the next starts."""
    if not document.documents:
        return
    try:
        async with AsyncClient(access) as admin:
            if document.is_new:
                await declare(admin, document.text, dry_run=True)
            await declare(admin, document.text)
    except BadDocumentError as error:
        raise BadDocumentError(f"{document.file} is refused: {error}\n{document.remedy}") from error
    fleet.keep(folder, document)


async def _stay(folder: StateFolder, address: str, say: Say) -> Never:
    write_private(folder.ready_file, f"{address}\n")
    say(f"Triplane is up: {address}. State and logs: {folder.root}. Stop it with `triplane down`{BY_KEY}")
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this event")


async def _first_failure(*work: Awaitable[None]) -> None:
    """Do endless work side by side until one part fails; raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            for part in work:
                group.create_task(_awaited(part))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _awaited(part: Awaitable[None]) -> None:
    await part


async def _until_signal(work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _cancel_once, task)
    try:
        await task
    except asyncio.CancelledError:
        return


def _cancel_once(task: "asyncio.Future[None]") -> None:
    if isinstance(task, asyncio.Task) and not task.cancelling():  # impatience must not cut the stopping short
        task.cancel()
