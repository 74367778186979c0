"""What FastStream listens on is what the catalogue says, in both directions."""

import pytest
from faststream.specification import AsyncAPI

from libs.bus.jetstream import JetStreamBus
from libs.config import Infrastructure
from schemas.catalog import SERVICES, durables, heard_by


async def ignore(_: object) -> None:
    """Take a batch and do nothing."""


@pytest.mark.parametrize("service", [name for name in SERVICES if durables(name)])
def test_the_channels_of_a_service_are_the_facts_it_hears(service: str) -> None:
    bus = JetStreamBus(service, Infrastructure())
    for durable in durables(service):
        bus.consume(durable, ignore)
    channels = AsyncAPI(bus.broker, schema_version="3.0.0").to_specification().to_jsonable()["channels"]
    assert sorted(channel["address"] for channel in channels.values()) == sorted(
        fact.pattern for fact in heard_by(service)
    )
