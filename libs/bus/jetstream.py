"""The bus on NATS: one connection, FastStream's broker on it, and JetStream's streams and durables."""

import asyncio
import math
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC
from typing import Final
from urllib.parse import urlsplit

import nats.errors
import nats.js.errors
from faststream.security import BaseSecurity, SASLPlaintext
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from libs.bus import streams
from libs.bus.batch import until_available
from libs.bus.consumer import Keeper, NatsDelivery, subscribe
from libs.bus.ports import BATCH, UNAVAILABLE, Question, Receipt, StreamState, TakeBatch, TakeQuestion
from libs.bus.publisher import Publisher
from libs.bus.steady import SteadyBroker
from libs.bus.subjects import TRACEPARENT
from libs.config import Infrastructure
from libs.errors import RefusedError, UnavailableError
from libs.log import get_logger
from libs.pg.outbox import Unsent
from schemas.catalog import Durable, Stream

ADVISORY: Final = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES"
ERROR: Final = "Triplane-Error"
WITHIN: Final = "Triplane-Within"  # the seconds that who asks waits
RECONNECT_SECONDS: Final = 1
PORT: Final = 4222  # of NATS, where an address names none
FLUSH_SECONDS: Final = 5.0
STUCK_SECONDS: Final = 30.0  # with a server there and no connection to it, before the process is to begin anew
LOOK_AGAIN_SECONDS: Final = 0.5  # so that a loss that lasts costs little
DELETED_SECONDS: Final = 2.0
"""A server forgets the name of a deleted stream first and removes its files later: those of a new one, too."""
WAITING_QUESTIONS: Final = 10_000
BUSY: Final = 16  # messages at once, of which more are coming
BUSY_REST_SECONDS: Final = 0.05
log = get_logger(__name__)


class JetStreamBus:
    """Everything one service says to and hears from NATS."""

    def __init__(self, service: str, infrastructure: Infrastructure, *, limits: streams.Limits | None = None) -> None:
        self._service = service
        self._urls = infrastructure.nats_url.split(",")
        self._limits = limits or streams.Limits()
        self._durables: list[Durable] = []
        self._answered: list[tuple[str, str | None, TakeQuestion]] = []
        self._advisories: list[tuple[str, str, Callable[[bytes], Awaitable[None]]]] = []
        self._subscriptions: list[Subscription] = []
        self._reconnected: list[Callable[[], None]] = []
        self._failures: asyncio.Queue[Exception] = asyncio.Queue()
        self._declaring = asyncio.Lock()
        self._keeper = Keeper(self._declare_again, self._failures.put_nowait)
        self._client: Client | None = None
        self._context: JetStreamContext | None = None
        self._publisher: Publisher | None = None
        self._stopping = False
        self.broker = _broker(service, infrastructure, self._on_reconnect, self._on_disconnect)

    @property
    def connected(self) -> bool:
        """Whether the server can be reached now."""
        return self._client is not None and self._client.is_connected

    @property
    def client(self) -> Client:
        """The connection, once started."""
        assert self._client is not None, "the bus has not started"
        return self._client

    def consume(self, durable: Durable, take: TakeBatch, *, rest_seconds: float = 0.0) -> None:
        """Hand batches of a durable to ``take``, one after the other, with a rest after each that was not full.

        Under load everybody rests for a moment: one turn of many messages costs far less than many turns of a few.
        """
        self._durables.append(durable)

        async def handle(batch: Sequence[Msg]) -> None:
            try:
                await take([NatsDelivery(message) for message in batch])
            except Exception as error:
                self._failures.put_nowait(error)
                raise
            if len(batch) < BATCH and (rest := max(rest_seconds, BUSY_REST_SECONDS if len(batch) >= BUSY else 0.0)):
                await asyncio.sleep(rest)

        subscribe(self.broker, durable, self._keeper, handle)

    def given_up(self, durable: Durable, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Hand the server's advisories of messages that a durable gave up to ``take``."""
        self._advisories.append((f"{ADVISORY}.{durable.stream}.{durable.name}", durable.name, take))

    def answer(self, subject: str, queue: str | None, take: TakeQuestion) -> None:
        """Hand questions to ``take``; of the members of a queue, one gets each."""
        self._answered.append((subject, queue, take))

    def on_reconnect(self, action: Callable[[], None]) -> None:
        """Do this each time the server is back after it was away."""
        self._reconnected.append(action)

    async def connect(self) -> None:
        """Connect and declare. Waits until the server is there."""
        self._client = await self.broker.connect()
        self._context = self._client.jetstream()
        self._keeper.client = self._client
        self._publisher = Publisher(self._client)
        await self._publisher.open()
        used = streams.used_by(self._service, self._durables)
        await until_available(lambda: self._declare(used, self._durables), what="streams")

    async def start(self) -> None:
        """Begin to hand over."""
        await self.broker.start()
        await self._subscribe()
        await until_available(self._listens, what="NATS")  # who is told that we are ready may ask at once

    async def drain(self) -> None:
        """Take nothing new, and end when what was taken is settled."""
        with suppress(nats.errors.Error):
            await asyncio.gather(*(subscription.unsubscribe() for subscription in self._subscriptions))
        await asyncio.gather(*(subscriber.stop() for subscriber in self.broker.subscribers))

    async def stop(self) -> None:
        """Say what is still in the buffers and close."""
        self._stopping = True
        with suppress(nats.errors.Error, TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self.broker.stop()
        if self._client is not None and not self._client.is_closed:
            with suppress(OSError, nats.errors.Error):  # the server is away: there is nobody to say it to
                await self._client.close()

    async def died(self, *, stuck_seconds: float = STUCK_SECONDS) -> None:
        """Wait until a consumer dies of a defect or the client does not connect again, and raise why."""
        away_since: float | None = None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(stuck_seconds / 2):
                    raise await self._failures.get()
            away_since = None if self.connected else away_since or time.monotonic()
            if away_since and time.monotonic() - away_since >= stuck_seconds and await self._is_served():
                raise UnavailableError(
                    "NATS takes connections, and the client makes none: it was turned away, or broke"
                )

    async def _is_served(self) -> bool:
        """Whether a server takes a connection now."""
        for url in self._urls:
            place = urlsplit(url if "://" in url else f"nats://{url}")
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    _, writer = await asyncio.open_connection(place.hostname, place.port or PORT)
                writer.close()
                return True
        return False

    async def publish(self, messages: Sequence[Unsent]) -> list[Receipt | None]:
        """Say messages in this order; None where no receipt came. Raises UnavailableError when none could be said."""
        if not self.connected:
            raise UnavailableError("NATS is away")
        assert self._publisher is not None, "the bus has not started"
        receipts = await self._publisher.publish(messages)
        if None in receipts:
            await self._declare_again()  # the usual cause: the stream is gone
        return receipts

    async def look(self, stream: str) -> StreamState | None:
        """Return the state of a stream; None: it is gone, and is declared again. Raises UnavailableError."""
        try:
            info = await self._jetstream.stream_info(stream)
        except nats.js.errors.NotFoundError:
            await self._declare_again()
            return None
        except (nats.errors.Error, TimeoutError) as error:
            raise UnavailableError(f"JetStream does not answer: {type(error).__name__}") from error
        assert info.created is not None, stream
        return StreamState(info.created.astimezone(UTC), info.state.last_seq)

    async def ask(self, subject: str, body: bytes, *, timeout: float, traceparent: str | None = None) -> bytes:
        """Return the answer. Raises UnavailableError without one in time, RefusedError when refused."""
        try:
            headers = {WITHIN: f"{timeout:g}"} | ({TRACEPARENT: traceparent} if traceparent else {})
            answer = await self.client.request(subject, body, timeout=timeout, headers=headers)
        except (nats.errors.Error, TimeoutError) as error:
            raise UnavailableError(f"no answer on {subject}: {type(error).__name__}") from error
        code = (answer.headers or {}).get(ERROR)
        if code == UNAVAILABLE:
            raise UnavailableError(answer.data.decode(errors="replace"))
        if code:
            raise RefusedError(code, answer.data.decode(errors="replace"))
        return answer.data

    @property
    def _jetstream(self) -> JetStreamContext:
        assert self._context is not None, "the bus has not started"
        return self._context

    async def _on_disconnect(self) -> None:
        if not self._stopping:
            log.warning("NATS is away")

    async def _on_reconnect(self) -> None:
        log.info("NATS is back")
        self._keeper.reconnected()
        for action in self._reconnected:
            action()

    async def _subscribe(self) -> None:
        for subject, queue, take in self._answered:
            self._subscriptions.append(await self._listen(subject, queue or "", self._ask(take)))
        for subject, queue, hear in self._advisories:
            self._subscriptions.append(await self._listen(subject, queue, self._tell(hear)))

    async def _listens(self) -> None:
        """Return when the server knows what we listen to."""
        try:
            await self.client.flush(int(FLUSH_SECONDS))
        except nats.errors.ConnectionClosedError:
            raise
        except (nats.errors.Error, TimeoutError) as error:
            raise UnavailableError(f"NATS does not answer: {error!r}") from error

    async def _listen(self, subject: str, queue: str, hear: Callable[[Msg], Awaitable[None]]) -> Subscription:
        return await self.client.subscribe(subject, queue=queue, cb=hear, pending_msgs_limit=WAITING_QUESTIONS)

    def _ask(self, take: TakeQuestion) -> Callable[[Msg], Awaitable[None]]:
        async def hear(message: Msg) -> None:
            take(_question(self.client, message))

        return hear

    def _tell(self, take: Callable[[bytes], Awaitable[None]]) -> Callable[[Msg], Awaitable[None]]:
        async def hear(message: Msg) -> None:
            await take(message.data)

        return hear

    async def _declare_again(self) -> None:
        """Declare what is missing, and has been for so long that what it was before is deleted."""
        if self._declaring.locked():
            return
        async with self._declaring:
            with suppress(UnavailableError):
                missing = await self._missing()
                if any(missing):
                    await asyncio.sleep(DELETED_SECONDS)
                    await self._declare(*missing)
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _missing(self) -> tuple[list[Stream], list[Durable]]:
        used = streams.used_by(self._service, self._durables)
        try:
            return await streams.missing(self._jetstream, used, self._durables)
        except (nats.errors.Error, TimeoutError) as error:
            raise UnavailableError(f"JetStream does not answer: {error!r}") from error

    async def _declare(self, used: Sequence[Stream], durables: Sequence[Durable]) -> None:
        try:
            await streams.declare(self._jetstream, used, durables, self._limits)
        except (nats.errors.Error, TimeoutError) as error:
            log.warning("cannot declare streams", why=repr(error))
            raise UnavailableError(f"cannot declare streams: {error}") from error


def _broker(
    service: str,
    infrastructure: Infrastructure,
    reconnected: Callable[[], Awaitable[None]],
    disconnected: Callable[[], Awaitable[None]],
) -> SteadyBroker:
    return SteadyBroker(
        infrastructure.nats_url.split(","),
        name=service,
        security=_security(infrastructure),
        inbox_prefix=f"_INBOX.{service}",  # nobody else may read the answers to this service
        max_reconnect_attempts=-1,
        reconnect_time_wait=RECONNECT_SECONDS,
        ping_interval=10,
        reconnected_cb=reconnected,
        disconnected_cb=disconnected,
        error_cb=_warned,
        logger=None,
        apply_types=False,
    )


def _security(infrastructure: Infrastructure) -> BaseSecurity:
    """Return who we are, and TLS with the machine's certificates where an address says so."""
    user, password = infrastructure.nats_user, infrastructure.nats_password
    encrypted = ssl.create_default_context() if "tls://" in infrastructure.nats_url else None
    if user and password:
        return SASLPlaintext(user, password.get_secret_value(), ssl_context=encrypted)
    return BaseSecurity(ssl_context=encrypted)


async def _warned(error: Exception) -> None:
    log.warning("NATS error", why=repr(error))


def _question(client: Client, message: Msg) -> Question:
    async def reply(body: bytes) -> None:
        with suppress(nats.errors.Error):
            await message.respond(body)

    async def refuse(code: str, text: str) -> None:
        with suppress(nats.errors.Error):
            await client.publish(message.reply, text.encode(), headers={ERROR: code})

    headers, now = message.headers or {}, time.monotonic
    until = now() + _seconds(headers.get(WITHIN, ""))
    return Question(message.data, reply, refuse, headers.get(TRACEPARENT), lambda: now() < until)


def _seconds(said: str) -> float:
    """Return how long who asks waits; for ever when that is not said in a number."""
    with suppress(ValueError):
        if (seconds := float(said)) >= 0:  # NaN is not
            return seconds
    return math.inf
