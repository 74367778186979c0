"""Brings one service's schema to its newest revision."""

import asyncio
import importlib
import re
import threading
from pathlib import Path
from typing import Final

from libs.pg.pool import connect, translated, uninterrupted

_ROOT: Final = Path(__file__).parents[2]
_ONE_AT_A_TIME: Final = threading.Lock()  # Alembic's context is one a process; other processes wait in Postgres
_REVISION: Final = re.compile(r'^(down_)?revision\b[^=]*= *"([^"]+)"', re.MULTILINE)
_HAS_VERSION: Final = "SELECT to_regclass(quote_ident($1) || '.alembic_version') IS NOT NULL"


async def upgrade(dsn: str, service: str, *, versions: Path | None = None) -> None:
    """Run the revisions that the service's schema lacks. Safe to run from several processes at once.

    ``versions`` is the folder of the revisions, ``services/<service>/migrations/versions`` when not given.
    Raises UnavailableError.
    """
    folder = versions or _ROOT / "services" / service / "migrations/versions"
    if await _present(dsn, service) == heads(folder):
        return
    with translated():
        await asyncio.to_thread(_revise, dsn, service, folder)


def heads(folder: Path) -> set[str]:
    """Return the revisions that no other follows, as the files say."""
    found = [match for file in folder.glob("*.py") for match in _REVISION.findall(file.read_text())]
    return {name for down, name in found if not down} - {name for down, name in found if down}


async def _present(dsn: str, service: str) -> set[str]:
    connection = await connect(dsn, schema=service)
    try:
        if not await connection.fetchval(_HAS_VERSION, service):
            return set()
        return {row["version_num"] for row in await connection.fetch("SELECT version_num FROM alembic_version")}
    finally:
        await uninterrupted(connection.close())


def _revise(dsn: str, service: str, folder: Path) -> None:
    with _ONE_AT_A_TIME:
        # loaded only when there is something to do: Alembic costs a second and 20 MiB
        importlib.import_module("libs.pg.revise").revise(dsn, service, folder)
