"""Batches out of a durable and windows of messages into a stream, on real NATS."""

import asyncio

import pytest

from libs.bus.fetcher import Fetcher
from libs.bus.ports import Receipt
from libs.bus.publisher import Publisher
from libs.bus.streams import consumer_config, stream_config
from libs.bus.subjects import message
from libs.errors import UnavailableError
from libs.pg.outbox import Message, Unsent
from schemas.catalog import STREAMS, durables
from tests.support.shell_services import submitted
from tests.support.shell_worlds import RealWorld

DURABLE = next(row for row in durables("admission") if row.name == "admission-workload")


async def a_fetcher(real: RealWorld) -> Fetcher:
    jetstream = real.operator.jetstream()
    await jetstream.add_stream(stream_config(STREAMS[0]))
    await jetstream.add_consumer(DURABLE.stream, consumer_config(DURABLE))
    fetcher = Fetcher(real.operator, DURABLE)
    await fetcher.open()
    return fetcher


async def a_publisher(real: RealWorld) -> Publisher:
    publisher = Publisher(real.operator)
    await publisher.open()
    return publisher


def window(*names: str) -> list[Unsent]:
    """Return messages that say submissions."""
    return [Unsent(place, 1, message(submitted(name))) for place, name in enumerate(names)]


async def test_what_is_there_comes_in_order_and_no_more_than_was_asked_for(real: RealWorld) -> None:
    fetcher, publisher = await a_fetcher(real), await a_publisher(real)
    said = window(*(f"j{number}" for number in range(7)))
    await publisher.publish(said)
    batches = [await fetcher.fetch(5, 5.0), await fetcher.fetch(5, 5.0)]
    assert [[taken.data for taken in batch] for batch in batches] == [
        [item.message.body for item in said[:5]],
        [item.message.body for item in said[5:]],
    ]
    await fetcher.close()


async def test_on_an_idle_stream_a_fetch_ends_with_the_first_message(real: RealWorld) -> None:
    fetcher, publisher = await a_fetcher(real), await a_publisher(real)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        waiting = group.create_task(fetcher.fetch(5, 60.0))
        await asyncio.sleep(0)
        await publisher.publish(window("first"))
    assert [taken.data for taken in waiting.result()] == [window("first")[0].message.body]
    assert await fetcher.fetch(5, 0.1) == []
    await fetcher.close()


async def test_a_durable_that_is_gone_refuses_a_fetch(real: RealWorld) -> None:
    fetcher = await a_fetcher(real)
    await real.delete_durable(DURABLE.stream, DURABLE.name)
    with pytest.raises(UnavailableError, match="503"):
        await fetcher.fetch(5, 5.0)
    await fetcher.close()


async def test_each_message_gets_the_receipt_of_its_own_and_a_stream_that_is_not_there_none(real: RealWorld) -> None:
    fetcher, publisher = await a_fetcher(real), await a_publisher(real)
    first, second = window("a", "b")
    astray = Unsent(9, 1, Message(second.message.id, "nowhere.at.all", "NOWHERE", b"{}"))
    receipts = await publisher.publish([first, astray, second, first])
    assert receipts == [Receipt(1), None, Receipt(2), Receipt(1, duplicate=True)]
    assert await publisher.publish([]) == []
    await fetcher.close()
