"""Runs Alembic over one schema, in this thread."""

from pathlib import Path

from alembic import command
from alembic.config import Config


def revise(dsn: str, schema: str, folder: Path) -> None:
    """Run every revision of the folder that the schema lacks; ``libs/pg/env.py`` is the environment."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", str(folder))
    config.attributes.update(schema=schema, dsn=dsn)
    command.upgrade(config, "head")
