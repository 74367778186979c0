"""Says messages to JetStream in one window: all are on the way before the first receipt is awaited."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import nats.errors
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import Header

from libs.bus.ports import Receipt
from libs.bus.subjects import message_id
from libs.errors import UnavailableError
from libs.log import get_logger
from libs.pg.outbox import Unsent

RECEIPT_SECONDS: Final = 5.0
log = get_logger(__name__)


@dataclass(slots=True)
class Flight:
    """Messages on the way: what came back of each, and the event that nothing is missing."""

    receipts: list[Receipt | None]
    left: int
    faults: dict[int, str] = field(default_factory=dict)
    landed: asyncio.Event = field(default_factory=asyncio.Event)


class Publisher:
    """Says messages over one connection. Receipts are counted a flight, not waited for one by one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._numbers = count(1)
        self._flights: dict[int, Flight] = {}

    async def open(self) -> None:
        """Listen for receipts, for as long as the connection lives."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._take)

    async def publish(self, messages: Sequence[Unsent]) -> list[Receipt | None]:
        """Say messages in this order; None where no receipt came in time. Raises UnavailableError."""
        if not messages:
            return []
        number, flight = next(self._numbers), Flight([None] * len(messages), len(messages))
        self._flights[number] = flight
        try:
            await self._say(number, messages)
            with suppress(TimeoutError):
                async with asyncio.timeout(RECEIPT_SECONDS):
                    await flight.landed.wait()
        except nats.errors.Error as error:
            raise UnavailableError(f"NATS does not take messages: {type(error).__name__}") from error
        finally:
            del self._flights[number]
        _warn(messages, flight)
        return flight.receipts

    async def _say(self, number: int, messages: Sequence[Unsent]) -> None:
        for place, item in enumerate(messages):
            said = item.message
            headers = {
                **said.headers,
                Header.EXPECTED_STREAM.value: said.stream,
                Header.MSG_ID.value: message_id(said.id, item.said),
            }
            reply = f"{self._inbox}.{number}-{place}"
            await self._client.publish(said.subject, said.body, reply=reply, headers=headers)

    async def _take(self, message: Msg) -> None:
        number, _, place = message.subject.rpartition(".")[2].partition("-")
        flight = self._flights.get(int(number))
        if flight is None:
            return  # too late: it is said again
        _land(flight, int(place), message)
        flight.left -= 1
        if flight.left == 0:
            flight.landed.set()


def _land(flight: Flight, place: int, message: Msg) -> None:
    answer = orjson.loads(message.data or b"{}")
    if "seq" in answer and "error" not in answer:
        flight.receipts[place] = Receipt(answer["seq"], bool(answer.get("duplicate")))
    else:
        flight.faults[place] = str(answer.get("error") or (message.headers or {}).get("Status"))


def _warn(messages: Sequence[Unsent], flight: Flight) -> None:
    missing = [place for place, receipt in enumerate(flight.receipts) if receipt is None]
    if missing:
        first = missing[0]
        why = flight.faults.get(first, "no receipt in time")
        log.warning("not stored", n=len(missing), subject=messages[first].message.subject, why=why)
