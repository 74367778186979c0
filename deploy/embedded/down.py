"""`down`: stop the stack of a state directory, however it was left."""

import signal

from deploy.embedded import children
from deploy.embedded.failures import StackError
from deploy.embedded.state import StateFolder, held, holder
from deploy.embedded.waiting import within

STOP_SECONDS = 90.0  # every part drains in its turn


async def down(folder: StateFolder) -> list[str]:
    """Stop what runs here and return what was stopped: "stack", or names of leftovers. Raises StackError."""
    pid = holder(folder)
    if pid is not None:
        await _ask(folder, pid)
        return ["stack"]
    with held(folder):
        return await children.clear_leftovers(folder)


async def _ask(folder: StateFolder, pid: int) -> None:
    ticks = children.start_ticks(pid)
    if ticks is not None:
        children.send(children.Record(pid, ticks, signal.SIGTERM, children.boot_id()), signal.SIGTERM)
    if not await within(STOP_SECONDS, lambda: holder(folder) is None):
        raise StackError(f"Process {pid} did not stop within {STOP_SECONDS:.0f} s. See {folder.log_file('stack')}.")
