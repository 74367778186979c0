"""The ledger of a state directory, for those who copy it: the running stack's Postgres, or one started for a while."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from deploy.embedded import binaries, children, credentials, ports
from deploy.embedded.credentials import OPERATOR
from deploy.embedded.failures import StackError
from deploy.embedded.keeper import Keeper
from deploy.embedded.servers.identity import own_identity
from deploy.embedded.servers.postgres import DATABASE, PostgresServer
from deploy.embedded.state import StateFolder, held, holder


@asynccontextmanager
async def readable(folder: StateFolder) -> AsyncIterator[PostgresServer]:
    """Have the ledger there, whether the stack runs or not. Raises StackError."""
    if holder(folder) is not None:
        yield of_running(folder)
        return
    with held(folder):
        async with alone(folder) as server:
            yield server


@asynccontextmanager
async def alone(folder: StateFolder) -> AsyncIterator[PostgresServer]:
    """Have Postgres up, and nobody else. Hold the folder first. Raises StackError."""
    await children.clear_leftovers(folder)
    chosen = ports.settle(folder, sorted({*ports.saved(folder), "postgres"}), {})
    server = PostgresServer(folder, chosen["postgres"], credentials.kept_or_new(folder), own_identity())
    keeper = Keeper(folder, server)
    try:
        await keeper.start()
        yield server
    finally:
        await keeper.stop()


def of_running(folder: StateFolder) -> PostgresServer:
    """Return the Postgres of a stack that is up. Raises StackError while it starts."""
    secret, port = credentials.load(folder), ports.saved(folder).get("postgres")
    if secret is None or port is None:
        raise StackError(f"The stack on {folder.root} has no Postgres yet. Try again when it is up.")
    return PostgresServer(folder, port, secret, own_identity())


async def dump(server: PostgresServer, target: Path) -> None:
    """Write one consistent state of all services into a file, also while they work. Raises StackError."""
    await _run(server, "pg_dump", ["--format=custom", f"--file={target}", DATABASE])


async def load(server: PostgresServer, source: Path) -> None:
    """Replace what is in the database by a dump, whole or not at all. Raises StackError."""
    rules = ["--clean", "--if-exists", "--exit-on-error", "--single-transaction"]
    await _run(server, "pg_restore", [*rules, f"--dbname={DATABASE}", str(source)])


async def _run(server: PostgresServer, program: str, arguments: Sequence[str]) -> None:
    who = ["--host=127.0.0.1", f"--port={server.port}", f"--username={OPERATOR}", "--no-password"]
    process = await asyncio.create_subprocess_exec(
        str(binaries.postgres(program)),
        *who,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PGPASSWORD": server.credentials.postgres[OPERATOR]},
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise StackError(f"{program} failed: {said.decode(errors='replace').strip()[-500:]}")
