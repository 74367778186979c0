"""`status`: what runs on a state directory, seen from outside: by pid, by port, by asking."""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from deploy.embedded import children, ports
from deploy.embedded.foundation import SERVERS
from deploy.embedded.state import StateFolder, holder

ASK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Component:
    """One server, service or agent. `state` is ready, starting or down."""

    name: str
    state: str
    pid: int | None
    port: int | None


@dataclass(frozen=True, slots=True)
class Status:
    """The stack of one state directory. `pid` None: nobody holds it."""

    root: str
    pid: int | None
    is_ready: bool
    components: tuple[Component, ...]

    @property
    def is_up(self) -> bool:
        """Whether a stack runs here, ready or not."""
        return self.pid is not None

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {**asdict(self), "is_up": self.is_up}


async def look(folder: StateFolder) -> Status:
    """Look at every component that ever had a port here, all at the same time."""
    pid, known, alive = holder(folder), ports.saved(folder), children.recorded(folder)
    names = sorted({*known, *alive}, key=lambda name: (name not in SERVERS, name))
    components = await asyncio.gather(*(_component(name, known.get(name), alive.get(name), pid) for name in names))
    return Status(str(folder.root), pid, pid is not None and folder.ready_file.exists(), tuple(components))


def show(status: Status) -> None:
    """Print a table."""
    console = Console()
    headline = "ready" if status.is_ready else "starting" if status.is_up else "down"
    console.print(f"Triplane on {status.root}: {headline}" + (f", process {status.pid}" if status.pid else ""))
    console.print(_table(status.components))


def _table(components: Iterable[Component]) -> Table:
    table = Table("component", "state", "process", "port")
    for component in components:
        table.add_row(component.name, component.state, str(component.pid or "-"), str(component.port or "-"))
    return table


async def _component(name: str, port: int | None, record: children.Record | None, stack: int | None) -> Component:
    pid = record.pid if record else None
    if pid is None and name not in SERVERS:
        pid = stack  # a service inside the stack's own process
    if pid is None or port is None:
        return Component(name, "down" if pid is None else "ready", pid, port)
    return Component(name, "ready" if await _is_ready(name, port) else "starting", pid, port)


async def _is_ready(name: str, port: int) -> bool:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await _opens(port) if name in SERVERS else await _says_ready(port)
    except (OSError, TimeoutError):
        return False


async def _opens(port: int) -> bool:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    return True


async def _says_ready(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b" 200 " in await reader.readline()
    finally:
        writer.close()
