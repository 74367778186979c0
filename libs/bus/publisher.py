"""Says messages to JetStream in one window: all are on the way before the first receipt is awaited."""

import asyncio
from collections.abc import Sequence
from typing import Final

import nats.errors
from nats.js import JetStreamContext
from nats.js.api import PubAck

from libs.bus.ports import Receipt
from libs.bus.subjects import message_id
from libs.errors import UnavailableError
from libs.log import get_logger
from libs.pg.outbox import Unsent

RECEIPT_SECONDS: Final = 5.0
log = get_logger(__name__)


async def publish(jetstream: JetStreamContext, messages: Sequence[Unsent]) -> list[Receipt | None]:
    """Say messages in this order; None where no receipt came in time. Raises UnavailableError."""
    on_the_way: list[asyncio.Future[PubAck]] = []
    try:
        on_the_way.extend([await _sent(jetstream, item) for item in messages])
    except nats.errors.Error as error:
        _abandon(on_the_way)
        raise UnavailableError(f"NATS does not take messages: {type(error).__name__}") from error
    if on_the_way:
        await asyncio.wait(on_the_way, timeout=RECEIPT_SECONDS)
    receipts = [_receipt(future) for future in on_the_way]
    _warn(messages, receipts, on_the_way)
    _abandon(on_the_way)
    return receipts


async def _sent(jetstream: JetStreamContext, item: Unsent) -> "asyncio.Future[PubAck]":
    headers = {**item.message.headers, "Nats-Msg-Id": message_id(item.message.id, item.said)}
    return await jetstream.publish_async(
        item.message.subject, item.message.body, stream=item.message.stream, headers=headers
    )


def _receipt(future: "asyncio.Future[PubAck]") -> Receipt | None:
    if not future.done() or future.cancelled() or future.exception() is not None:
        return None
    answer = future.result()
    return Receipt(answer.seq, bool(answer.duplicate))


def _warn(
    messages: Sequence[Unsent], receipts: Sequence[Receipt | None], futures: "Sequence[asyncio.Future[PubAck]]"
) -> None:
    missing = [index for index, receipt in enumerate(receipts) if receipt is None]
    if missing:
        first = futures[missing[0]]
        why = repr(first.exception()) if first.done() and not first.cancelled() else "no receipt in time"
        log.warning("not stored", n=len(missing), subject=messages[missing[0]].message.subject, why=why)


def _abandon(futures: "Sequence[asyncio.Future[PubAck]]") -> None:
    """Let go of receipts that did not come, so that the client keeps no place for them."""
    for future in futures:
        future.cancel()
