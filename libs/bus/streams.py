"""Streams and durables, declared from the catalogue: at the start, and again after their loss."""

from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import BadRequestError, NotFoundError

from libs.bus.ports import MAX_DELIVER
from schemas.catalog import FACTS, STREAMS, Durable, Stream

DUPLICATE_WINDOW_SECONDS: Final = 120
MAX_ACK_PENDING: Final = 1_000  # five batches: bounds what a crash delivers again
MAX_MESSAGE_BYTES: Final = 1 << 20
_NAME_IN_USE: Final = 10058


@dataclass(frozen=True, slots=True)
class Limits:
    """What a deployment chooses. Of ``stream_bytes`` the oldest go first; what is still needed is said again."""

    ack_wait_seconds: float = 30.0
    stream_bytes: int = 1 << 30
    replicas: int = 1


DEFAULT: Final = Limits()


def used_by(service: str, durables: Sequence[Durable]) -> tuple[Stream, ...]:
    """Return the streams on which a service says or hears something, and DEAD."""
    names = {fact.stream for fact in FACTS if fact.owner == service} | {row.stream for row in durables} | {"DEAD"}
    return tuple(stream for stream in STREAMS if stream.name in names)


async def declare(
    jetstream: JetStreamContext, streams: Collection[Stream], durables: Collection[Durable], limits: Limits = DEFAULT
) -> None:
    """Make streams and durables as the catalogue says, or change them to that. Raises nats' errors."""
    for stream in streams:
        await _declare_stream(jetstream, stream_config(stream, limits))
    for durable in durables:
        await jetstream.add_consumer(durable.stream, consumer_config(durable, limits))


async def missing(
    jetstream: JetStreamContext, streams: Collection[Stream], durables: Collection[Durable]
) -> tuple[list[Stream], list[Durable]]:
    """Return which of these streams and durables are not there. Raises nats' errors."""
    return (
        [stream for stream in streams if not await _is_there(jetstream.stream_info(stream.name))],
        [row for row in durables if not await _is_there(jetstream.consumer_info(row.stream, row.name))],
    )


async def _is_there(look: Awaitable[object]) -> bool:
    try:
        await look
    except NotFoundError:
        return False
    return True


async def _declare_stream(jetstream: JetStreamContext, config: StreamConfig) -> None:
    try:
        await jetstream.add_stream(config)
    except BadRequestError as error:
        if error.err_code != _NAME_IN_USE:
            raise
        await jetstream.update_stream(config)


def stream_config(stream: Stream, limits: Limits = DEFAULT) -> StreamConfig:
    """Return how a stream of the catalogue is kept: on disk, bounded, with a memory for message ids."""
    return StreamConfig(
        name=stream.name,
        subjects=list(stream.subjects),
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_age=stream.max_age_seconds,
        max_bytes=limits.stream_bytes,
        num_replicas=limits.replicas,
        max_msg_size=MAX_MESSAGE_BYTES,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
    )


def consumer_config(durable: Durable, limits: Limits = DEFAULT) -> ConsumerConfig:
    """Return how a durable of the catalogue delivers. Retries are delayed by us, never by ``backoff``."""
    return ConsumerConfig(
        name=durable.name,
        durable_name=durable.name,
        filter_subjects=list(durable.filter_subjects),
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=limits.ack_wait_seconds,
        max_deliver=MAX_DELIVER,
        max_ack_pending=MAX_ACK_PENDING,
    )
