"""Brings one service's schema to its newest revision."""

import asyncio
import threading
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config

from libs.pg.pool import translated

_ROOT: Final = Path(__file__).parents[2]
_ONE_AT_A_TIME: Final = threading.Lock()  # Alembic's context is one a process; other processes wait in Postgres


async def upgrade(dsn: str, service: str, *, versions: Path | None = None) -> None:
    """Run the revisions that the service's schema lacks. Safe to run from several processes at once.

    ``versions`` is the folder of the revisions, ``services/<service>/migrations/versions`` when not given.
    Raises UnavailableError.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", str(versions or _ROOT / "services" / service / "migrations/versions"))
    config.attributes["schema"] = service
    config.attributes["dsn"] = dsn
    with translated():
        await asyncio.to_thread(_upgrade, config)


def _upgrade(config: Config) -> None:
    with _ONE_AT_A_TIME:
        command.upgrade(config, "head")
