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
from deploy.embedded.gateway import access_of, declare
from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.models import Job, NewToken, Node
from schemas.spec.job import Job as JobDocument

FLEET_SECONDS = 60.0  # until all nodes have reported
WATCH_SECONDS = 400.0  # a machine with ten times its load; a quiet one needs 30
BOOKS_SECONDS = 20.0  # billing hears of the last release
LOOK_SECONDS = 0.4
MOST = 1_000
SAY_SECONDS = 5.0  # between two lines where there is no terminal


async def open_fleet(admin: AsyncClient) -> Mapping[str, str]:
    """Declare tenants and queues and wait for the nodes; return a token for each tenant. Raises StackError."""
    tokens = {tenant: await _add_tenant(admin, tenant) for tenant, _ in plan.quotas()}
    await declare(admin, plan.QUEUES.read_text())
    deadline = time.monotonic() + FLEET_SECONDS
    while not _all_ready(await nodes(admin)):
        if time.monotonic() > deadline:
            raise StackError(f"The nodes were not ready within {FLEET_SECONDS:.0f} s.")
        await asyncio.sleep(LOOK_SECONDS)
    return tokens


async def submit(stage: Stage, tokens: Mapping[str, str], wishes: Iterable[JobDocument]) -> None:
    """Hand in every tenant's jobs with its own token, in the order of its documents, so that queues have that order."""
    own: dict[str, list[JobDocument]] = {}
    for job in wishes:
        own.setdefault(job.metadata.tenant or "", []).append(job)
    await asyncio.gather(*(_submit(stage.address, tokens[tenant], theirs) for tenant, theirs in own.items()))


async def watch(console: Console, admin: AsyncClient) -> list[Job]:
    """Show what goes on until every job has ended; cancel the one, and in the end the one that fits nowhere."""
    began = time.monotonic()
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        said = 0.0
        while True:
            listed, fleet, seconds = await jobs(admin), await nodes(admin), time.monotonic() - began
            live.update(screen.progress(listed, fleet, seconds))
            if not console.is_terminal and seconds - said >= SAY_SECONDS:
                said = seconds
                console.print(screen.summary_line(listed, fleet, seconds))
            await _cancel_what_is_due(admin, listed)
            if all(job.ended for job in listed) and not any(node.reserved for node in fleet):
                return listed
            if seconds > WATCH_SECONDS:
                return listed
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


async def jobs(client: AsyncClient) -> list[Job]:
    """Return all jobs, oldest first; at most a thousand."""
    page = await client.ask(calls.jobs(limit=MOST))
    return list(reversed(page.items))


async def nodes(client: AsyncClient) -> list[Node]:
    """Return all nodes by name; at most a thousand."""
    return list((await client.ask(calls.nodes(limit=MOST))).items)


async def _add_tenant(admin: AsyncClient, name: str) -> str:
    await admin.ask(calls.create_tenant(name))
    token = await admin.ask(calls.create_token(NewToken(name=f"{name}-demo", role="submitter", tenant=name)))
    return token.secret


async def _submit(address: str, token: str, wishes: Sequence[JobDocument]) -> None:
    async with AsyncClient(access_of(address, token)) as tenant:
        for job in wishes:
            await declare(tenant, job.model_dump_json(exclude_none=True))


async def _cancel_what_is_due(admin: AsyncClient, listed: Sequence[Job]) -> None:
    left = [job for job in listed if not job.ended]
    due = [job for job in left if job.name == plan.CANCELLED and job.state == "Running"]
    due += left if [job.name for job in left] == [plan.TOO_LARGE] else []
    for job in due:
        if job.withdrawn_at is None:
            await admin.ask(calls.cancel(job.id))


def _all_ready(fleet: Sequence[Node]) -> bool:
    devices = sum(sum(node.devices.values()) for node in fleet if node.state == "ready")
    return devices == plan.DEVICES
