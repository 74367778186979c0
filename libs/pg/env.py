"""Alembic's environment, run once a schema: its version table is inside the service's own schema."""

import asyncio

from alembic import context
from sqlalchemy import Connection, pool, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.schema import CreateSchema

from libs.pg.pool import connect


def _migrate(connection: Connection, schema: str) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": f"migrate {schema}"})
    if not connection.execute(text("SELECT to_regnamespace(:name) IS NOT NULL"), {"name": schema}).scalar_one():
        connection.execute(CreateSchema(schema))
    context.configure(connection=connection, version_table_schema=schema)
    context.run_migrations()


async def _run() -> None:
    schema, dsn = context.config.attributes["schema"], context.config.attributes["dsn"]
    engine = create_async_engine(
        "postgresql+asyncpg://", poolclass=pool.NullPool, async_creator=lambda: connect(dsn, schema=schema)
    )
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_migrate, schema)
    finally:
        await engine.dispose()


asyncio.run(_run())
