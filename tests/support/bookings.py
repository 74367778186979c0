"""What is charged and what is held, as the database notes it at the end of each transaction."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from libs.pg.pool import Connection
from tests.support.servers import Servers

WATCH = """
    CREATE TABLE public.watched (at bigserial, charged bigint, held bigint);
    CREATE FUNCTION public.note_watched() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
        INSERT INTO public.watched (charged, held)
        SELECT (SELECT coalesce(sum(booked), 0) FROM admission.charges WHERE NOT over),
               (SELECT count(*) FROM placement.lines WHERE live);
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER note_watched AFTER INSERT OR UPDATE ON admission.charges
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_watched();
    CREATE CONSTRAINT TRIGGER note_watched AFTER INSERT OR UPDATE ON placement.lines
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_watched();
"""
WATCHED = "SELECT charged, held FROM public.watched ORDER BY at"
NOW = """
    SELECT (SELECT coalesce(sum(booked), 0) FROM admission.charges WHERE NOT over) AS charged,
           (SELECT count(*) FROM placement.lines WHERE live) AS held
"""
FORGET = "DROP TABLE IF EXISTS public.watched; DROP FUNCTION IF EXISTS public.note_watched() CASCADE"


class Noted(NamedTuple):
    """Devices that are charged, and that grants hold."""

    charged: int
    held: int


class Book:
    """The database, beside the services."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def watch(self) -> None:
        """Note from now on what is charged and held."""
        await self._connection.execute(WATCH)

    async def noted(self) -> list[Noted]:
        """Return what was noted, in order, each change once."""
        rows = [Noted(row["charged"], row["held"]) for row in await self._connection.fetch(WATCHED)]
        return [row for place, row in enumerate(rows) if place == 0 or row != rows[place - 1]]

    async def now(self) -> Noted:
        """Return what is charged and held now."""
        row = await self._connection.fetchrow(NOW)
        assert row is not None
        return Noted(row["charged"], row["held"])


@asynccontextmanager
async def a_book(servers: Servers) -> AsyncIterator[Book]:
    """Open the database; it notes nothing any more afterwards."""
    connection = await servers.foundation.postgres.connect()
    try:
        yield Book(connection)
    finally:
        await connection.execute(FORGET)
        await connection.close()
