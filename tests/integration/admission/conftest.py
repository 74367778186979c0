"""What admission's tests ask for."""

from collections.abc import AsyncIterator

import pytest

from libs.config import Infrastructure
from tests.support.bookings import Book, a_book
from tests.support.servers import Servers


@pytest.fixture
async def surroundings(servers: Servers) -> Infrastructure:
    return await servers.infrastructure("admission")


@pytest.fixture
async def book(servers: Servers) -> AsyncIterator[Book]:
    """The database, which is to note what is charged and held at the end of each transaction."""
    async with a_book(servers) as opened:
        yield opened
