"""`status`: what runs on a state directory, seen from outside: by pid, by port, by asking."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from deploy.embedded import children, ports
from deploy.embedded.ports import HEALTH
from deploy.embedded.readiness import is_ready
from deploy.embedded.servers import SERVERS
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
    gateway: str | None
    components: tuple[Component, ...]

    @property
    def is_up(self) -> bool:
        """Whether a stack runs here, ready or not."""
        return self.pid is not None

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {**asdict(self), "is_up": self.is_up}


async def look(folder: StateFolder) -> Status:
    """Look at every component of the last start, all at the same time."""
    pid, known, alive = holder(folder), ports.saved(folder), children.recorded(folder)
    names = [name for name in known if name in SERVERS or name.endswith(HEALTH)]
    components = await asyncio.gather(*(_component(name, known[name], alive, pid) for name in names))
    address = f"http://127.0.0.1:{known['gateway']}" if "gateway" in known else None
    return Status(str(folder.root), pid, pid is not None and folder.ready_file.exists(), address, tuple(components))


def show(status: Status) -> None:
    """Print a table."""
    console = Console()
    headline = "ready" if status.is_ready else "starting" if status.is_up else "down"
    console.print(f"Triplane on {status.root}: {headline}" + (f", process {status.pid}" if status.pid else ""))
    if status.gateway and status.is_ready:
        console.print(f"Gateway: {status.gateway}")
    console.print(_table(status.components))


def _table(components: Iterable[Component]) -> Table:
    table = Table("component", "state", "process", "port", caption="a service's port is for its health and metrics")
    for component in components:
        table.add_row(component.name, component.state, str(component.pid or "-"), str(component.port or "-"))
    return table


async def _component(name: str, port: int, alive: Mapping[str, children.Record], stack: int | None) -> Component:
    post = name.removesuffix(HEALTH)
    record = alive.get(post)
    pid = record.pid if record else None if name in SERVERS else stack  # services may share the stack's own process
    if pid is None:
        return Component(post, "down", None, port)
    return Component(post, "ready" if await _answers(name, port) else "starting", pid, port)


async def _answers(name: str, port: int) -> bool:
    return await (_opens(port) if name in SERVERS else is_ready(port))


async def _opens(port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), ASK_SECONDS)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
