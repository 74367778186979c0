"""What the demonstration does: open the fleet, submit as three tenants, and watch until every job has ended."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.live import Live

from deploy.embedded.demo import books, plan, screen
from deploy.embedded.demo.books import Books
from deploy.embedded.demo.stage import Stage
from deploy.embedded.failures import StackError
from deploy.embedded.gateway import Gateway
from libs.client.models import Job, Node
from schemas.spec.job import Job as JobDocument

FLEET_SECONDS = 60.0  # until all nodes have reported
WATCH_SECONDS = 240.0  # a busy machine; a quiet one needs 40
BOOKS_SECONDS = 20.0  # billing hears of the last release
LOOK_SECONDS = 0.4
SAY_SECONDS = 5.0  # between two lines where there is no terminal


async def open_fleet(admin: Gateway) -> Mapping[str, str]:
    """Declare tenants and queues and wait for the nodes; return a token for each tenant. Raises StackError."""
    tokens = {tenant: await admin.add_tenant(tenant) for tenant, _ in plan.quotas()}
    await admin.declare(plan.QUEUES.read_text())
    deadline = time.monotonic() + FLEET_SECONDS
    while not _all_ready(await admin.nodes()):
        if time.monotonic() > deadline:
            raise StackError(f"The nodes were not ready within {FLEET_SECONDS:.0f} s.")
        await asyncio.sleep(LOOK_SECONDS)
    return tokens


async def submit(stage: Stage, tokens: Mapping[str, str], jobs: Iterable[JobDocument]) -> None:
    """Hand in every tenant's jobs with its own token, in the order of its documents, so that queues have that order."""
    own: dict[str, list[JobDocument]] = {}
    for job in jobs:
        own.setdefault(job.metadata.tenant or "", []).append(job)
    await asyncio.gather(*(_submit(stage.address, tokens[tenant], wishes) for tenant, wishes in own.items()))


async def watch(console: Console, admin: Gateway) -> list[Job]:
    """Show what goes on until every job has ended; cancel the one, and in the end the one that fits nowhere."""
    began = time.monotonic()
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        said = 0.0
        while True:
            jobs, nodes, seconds = await admin.jobs(), await admin.nodes(), time.monotonic() - began
            live.update(screen.progress(jobs, nodes, seconds))
            if not console.is_terminal and seconds - said >= SAY_SECONDS:
                said = seconds
                console.print(screen.summary_line(jobs, nodes, seconds))
            await _cancel_what_is_due(admin, jobs)
            if all(job.ended for job in jobs) and not any(node.reserved for node in nodes):
                return jobs
            if seconds > WATCH_SECONDS:
                return jobs
            await asyncio.sleep(LOOK_SECONDS)


async def read_books(stage: Stage) -> Books:
    """Read ledger and bill when the bill has caught up with the ledger, or after a while as they are."""
    connection = await stage.postgres().connect()
    try:
        deadline = time.monotonic() + BOOKS_SECONDS
        while True:
            kept = await books.read(connection)
            if len(kept.charges) >= len(kept.holds) or time.monotonic() > deadline:
                return kept
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await connection.close()


async def _submit(address: str, token: str, jobs: Sequence[JobDocument]) -> None:
    async with Gateway(address, token) as tenant:
        for job in jobs:
            await tenant.declare(job.model_dump_json(exclude_none=True))


async def _cancel_what_is_due(admin: Gateway, jobs: Sequence[Job]) -> None:
    left = [job for job in jobs if not job.ended]
    due = [job for job in left if job.name == plan.CANCELLED and job.state == "Running"]
    due += left if [job.name for job in left] == [plan.TOO_LARGE] else []
    for job in due:
        if job.withdrawn_at is None:
            await admin.cancel(job.id)


def _all_ready(nodes: Sequence[Node]) -> bool:
    devices = sum(sum(node.devices.values()) for node in nodes if node.state == "ready")
    return devices == plan.DEVICES
