"""The database of a stack: a role and a schema for each service, and nothing shared between them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import asyncpg

from deploy.embedded.credentials import OPERATOR

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Connect: TypeAlias = Callable[[str], Awaitable[Connection]]

# DDL takes no parameters: the server itself quotes the names (format's %I and %L), and we run what it returns.
ROLES = """
SELECT format(CASE WHEN pg_roles.rolname IS NULL THEN 'CREATE' ELSE 'ALTER' END
              || ' ROLE %I LOGIN PASSWORD %L', wanted.role, wanted.password)
  FROM unnest($1::text[], $2::text[]) AS wanted(role, password)
  LEFT JOIN pg_roles ON pg_roles.rolname = wanted.role
UNION ALL
SELECT format('ALTER ROLE %I SET search_path = %I', wanted.role, wanted.schema)
  FROM unnest($1::text[], $3::text[]) AS wanted(role, schema)
"""
DATABASES = """
SELECT format('CREATE DATABASE %I', $1::text)
 WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = $1)
"""
SCHEMAS = """
SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database())
UNION ALL SELECT 'REVOKE ALL ON SCHEMA public FROM PUBLIC'
UNION ALL
SELECT format(statement, wanted.role, wanted.schema, current_database())
  FROM unnest($1::text[], $2::text[]) AS wanted(role, schema),
       unnest(ARRAY['GRANT CONNECT ON DATABASE %3$I TO %1$I',
                    'CREATE SCHEMA IF NOT EXISTS %2$I AUTHORIZATION %1$I']) AS statement
"""


def role_of(service: str) -> str:
    """Return the Postgres role of a service; its schema has the service's own name."""
    return f"triplane_{service}"


async def furnish(connect: Connect, database: str, passwords: Mapping[str, str]) -> None:
    """Make database, roles and schemas where they are missing and set the passwords. Raises asyncpg.PostgresError."""
    schemas = [user for user in passwords if user != OPERATOR]
    named = [role_of(service) for service in schemas]
    await _run(
        connect, "postgres", (ROLES, named, [passwords[user] for user in schemas], schemas), (DATABASES, database)
    )
    await _run(connect, database, (SCHEMAS, named, schemas))


async def _run(connect: Connect, database: str, *writers: tuple[object, ...]) -> None:
    connection = await connect(database)
    try:
        for query, *values in writers:
            for (statement,) in await connection.fetch(str(query), *values):
                await connection.execute(statement)
    finally:
        await connection.close()
