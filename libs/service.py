"""What every service stands on: its connections, its turns, its loops, and how it starts and ends."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

import uvloop
from pydantic import BaseModel
from pydantic_settings import BaseSettings

from libs import garbage
from libs import log as logs
from libs.bus import crashes
from libs.bus.batch import Batches, Handler, caught, until_available
from libs.bus.calls import Answerer, Answers, PlainAnswerer, PlainAnswers
from libs.bus.jetstream import JetStreamBus
from libs.bus.ports import Bus, Store
from libs.bus.postgres import PostgresStore
from libs.bus.relay import Relay
from libs.bus.streams import Limits, used_by
from libs.bus.subjects import message
from libs.bus.turn import QUIET_SECONDS, Turn
from libs.clock import Clock, SystemClock
from libs.config import Infrastructure
from libs.errors import TransientError, UnavailableError
from libs.log import get_logger
from libs.opened import Resource
from libs.pg import migrate
from libs.pg.outbox import Unsent, backlog
from libs.pg.pool import Connection, Pool, open_pool, transaction
from libs.pg.retention import forget, inbox_seconds
from libs.probes import Probes
from libs.telemetry.meters import call_of
from libs.telemetry.metrics import Metrics
from libs.telemetry.telemetry import telemetry
from libs.work import Wake, cancelled, repeat
from schemas.base import Envelope
from schemas.catalog import durables

__all__ = ["Answerer", "Handler", "Infrastructure", "Resource", "Service", "Turn", "Wake", "main"]

T = TypeVar("T")
S = TypeVar("S", bound=BaseSettings)
Hook = Callable[[], Awaitable[None]]
Sweep = Callable[[Turn], Awaitable[Sequence[UUID]]]

PULSE_SECONDS: Final = 5.0
FOLLOW_SECONDS: Final = 0.2  # the rest of who only follows: nobody sees it, and one turn takes in what ten would
FORGET_SECONDS: Final = 60.0
DRAIN_SECONDS: Final = 10.0  # what takes longer is delivered again to the next process
log = get_logger(__name__)


class Service:
    """One service: register everything first, then run. Nothing is opened before ``start``."""

    def __init__(
        self,
        name: str,
        infrastructure: Infrastructure,
        *,
        postgres: bool = True,
        sweep_seconds: float = 60.0,
        pool_size: int = 5,
        ack_wait_seconds: float | None = None,
        versions: Path | None = None,
        bus: Bus | None = None,
        store: Store | None = None,
    ) -> None:
        """``versions``: the folder of revisions, if not the service's own. ``bus``, ``store``: a memory twin."""
        self.name = name
        self.infrastructure = infrastructure
        self.clock: Clock = SystemClock()
        self.log = get_logger(f"services.{name}")
        self._limits = Limits(
            ack_wait_seconds or infrastructure.ack_wait_seconds,
            infrastructure.stream_bytes,
            infrastructure.stream_replicas,
        )
        self.bus: Bus = bus or JetStreamBus(name, infrastructure, limits=self._limits)
        self.ready = False
        self.telemetry = telemetry(name, infrastructure)
        self.probes = Probes(self.missing, self.metrics.text)
        self._postgres = postgres and store is None
        self._store = store
        if store is not None:
            store.telemetry = self.telemetry
        self._store_answers = True
        self._pool: Pool | None = None
        self._pool_size = pool_size
        self._sweep_seconds = sweep_seconds
        self._versions = versions
        self._handlers: dict[str, tuple[Handler, Handler | None, float]] = {}
        self._answers: list[Answers | PlainAnswers] = []
        self._loops: list[Callable[[], Coroutine[None, None, None]]] = []
        self._on_start: list[Hook] = []
        self._on_stop: list[Hook] = []
        self._relay: Relay | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._end = asyncio.Event()
        self._failure: BaseException | None = None
        self.metrics.gauge("triplane_ready", "1: nothing keeps it from its work.", lambda: not self.missing())
        if self._postgres:
            self.telemetry.meters.show_pool(lambda: self._pool, pool_size)

    # what a service registers

    def consume(
        self, durable: str, handler: Handler, again: Handler | None = None, *, rest_seconds: float = 0.0
    ) -> None:
        """Take the batches of a durable of the catalogue, each in a turn. Raises KeyError for one that is not ours.

        ``again`` gets what was taken before and is said again on purpose, to say again what answers it. Who only
        follows what others do rests after each turn, and so takes in one what it would take in ten.
        """
        {row.name: row for row in durables(self.name)}[durable]
        self._handlers[durable] = (handler, again, rest_seconds)

    def answer(self, subject: str, handler: Answerer, *, queue: str | None = None) -> None:
        """Answer calls in turns: questions that arrive together are answered in one, in order, after its commit."""
        answers = Answers(subject, handler, self.turn, telemetry=self.telemetry)
        self.bus.answer(subject, queue or self.name, answers.take)
        self._answers.append(answers)

    def answer_plain(self, subject: str, handler: PlainAnswerer) -> None:
        """Answer calls one by one, without a turn."""
        answers = PlainAnswers(subject, handler, telemetry=self.telemetry)
        self.bus.answer(subject, None, answers.take)
        self._answers.append(answers)

    def loop(self, name: str, work: Hook, *, every: float) -> Wake:
        """Do the work at the start, every so many seconds, and at once when woken.

        A TransientError backs off; anything else ends the process.
        """
        wake = Wake()
        self._loops.append(lambda: repeat(name, work, every=every, wake=wake, telemetry=self.telemetry))
        return wake

    def sweep(self, unanswered: Sweep) -> None:
        """Say again, at the start and every sweep, the facts whose ids this returns: nobody has answered them."""

        async def work() -> None:
            async with self.turn() as turn:
                again = await turn.say_again(await unanswered(turn), asks=True)
            if again:
                log.info("said again", n=again)

        self.loop("sweep", work, every=self._sweep_seconds)

    def measure(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        """Fill tables of ``metrics`` from the store when somebody reads them, in a transaction of its own."""

        async def measure() -> None:
            if not self.ready:
                raise UnavailableError("not at work")
            async with transaction(self.pool) as connection:
                await work(connection)

        self.metrics.measure(measure)

    def on_start(self, hook: Hook) -> None:
        """Do this when Postgres and NATS are there and nothing has been taken yet."""
        self._on_start.append(hook)

    def on_stop(self, hook: Hook) -> None:
        """Do this when nothing is taken any more; the last registered comes first."""
        self._on_stop.append(hook)

    def resource(
        self, name: str, opened: Callable[[], Awaitable[T]], close: Callable[[T], Awaitable[None]]
    ) -> Resource[T]:
        """Open something at the start and close it at the stop; its ``value`` is there in between."""
        resource: Resource[T] = Resource(name)

        self.on_start(lambda: resource.open(opened))
        self.on_stop(lambda: resource.close(close))
        return resource

    # what a service does

    @property
    def metrics(self) -> Metrics:
        """Where the service registers numbers of its own."""
        return self.telemetry.meters.metrics

    @property
    def pool(self) -> Pool:
        """The pool of Postgres, once started."""
        assert self._pool is not None, f"{self.name} has no open pool"
        return self._pool

    @property
    def store(self) -> Store:
        """Where turns are, once started."""
        assert self._store is not None, f"{self.name} has no store"
        return self._store

    def turn(self) -> AbstractAsyncContextManager[Turn]:
        """Open a turn without messages: for timers, cycles and requests. Raises TransientError."""
        return self.store.turn()

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Say facts without an outbox and wait for the receipts. Raises UnavailableError; say them again then."""
        tracer = self.telemetry.tracer
        facts = [tracer.stamped(envelope) for envelope in envelopes]
        messages = [message(fact, traced=tracer.records(fact)) for fact in facts]
        if None in await self.bus.publish([Unsent(place, 1, said) for place, said in enumerate(messages)]):
            raise UnavailableError("a fact was not stored")
        self.telemetry.said([(fact, None) for fact in facts])

    async def call(self, subject: str, question: BaseModel, *, timeout: float) -> bytes:
        """Ask and return the answer's bytes. Raises UnavailableError without one in time, RefusedError when refused."""
        body = question.model_dump_json().encode()
        with self.telemetry.asking(call_of(subject)) as traceparent:
            return await self.bus.ask(subject, body, timeout=timeout, traceparent=traceparent)

    # its life

    async def start(self) -> None:
        """Migrate, connect, begin to work. Waits for servers that are not there yet."""
        self.telemetry.open(self.infrastructure)
        await self.probes.open(self.infrastructure.health_host, self.infrastructure.health_port)
        if self._postgres:
            await self._open_store()
        self._register()
        await self.bus.connect()
        for hook in self._on_start:
            await hook()
        await self.bus.start()
        self._begin()
        self.ready = True
        log.info("started", service=self.name)

    async def stop(self) -> None:
        """Finish what was taken, say what is committed, close."""
        self.ready = False
        await self._cancel([name for name in self._tasks if name.startswith("loop")])
        ends = (self.bus.stop, self._close_pool, self.telemetry.tracer.close)
        for step in (self._drain, self._cancel, *reversed(self._on_stop), *ends):
            error = await caught(step())
            if error is not None:
                log.warning("a part did not end well", error=error)
        await self.probes.close()
        log.info("stopped", service=self.name)

    async def run(self) -> None:
        """Work until told to end or a part of the work dies; then stop, and raise what it died of."""
        try:
            await self._started_or_ended()
            await self._end.wait()
        finally:
            await self.stop()
        if self._failure is not None:
            raise self._failure

    def missing(self) -> list[str]:
        """Return what keeps the service from being ready; empty: nothing does."""
        missing = [] if self.ready else ["not started"]
        missing += [] if self.bus.connected else ["NATS is away"]
        missing += [] if self._store_answers else ["Postgres is away"]
        return missing + [f"{name} has ended" for name, task in self._tasks.items() if task.done()]

    def end(self) -> None:
        """Let ``run`` stop cleanly."""
        self._end.set()

    async def _started_or_ended(self) -> None:
        """Start, but not longer than until told to end: a server may be away for long."""
        starting, ended = asyncio.ensure_future(self.start()), asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
        finally:
            await cancelled((starting, ended))

    async def _open_store(self) -> None:
        dsn = self.infrastructure.postgres_dsn.get_secret_value()
        await until_available(lambda: migrate.upgrade(dsn, self.name, versions=self._versions), what="migrations")
        self._pool = await until_available(
            lambda: open_pool(dsn, schema=self.name, maximum=self._pool_size), what="Postgres"
        )
        self.loop("forget", self._forget, every=FORGET_SECONDS)
        self.loop("pulse", self._feel_pulse, every=PULSE_SECONDS)
        quiet = min(QUIET_SECONDS, self._sweep_seconds / 2)
        self._store = PostgresStore(self.name, dsn, self._pool, quiet_seconds=quiet)
        self._store.telemetry = self.telemetry

    async def _feel_pulse(self) -> None:
        """Ask Postgres what waits to be said; who asks whether we are ready is told whether it answered."""
        try:
            async with asyncio.timeout(PULSE_SECONDS):
                async with transaction(self.pool) as connection:
                    self.telemetry.meters.waits(await backlog(connection))
        except (TransientError, TimeoutError):
            self._store_answers = False
        else:
            self._store_answers = True

    async def _forget(self) -> None:
        """Delete what inbox and outbox need not remember any more."""
        rows = {row.name: inbox_seconds(row) for row in durables(self.name) if row.name in self._handlers}
        more = True
        while more:
            async with transaction(self.pool) as connection:
                more = await forget(connection, rows)

    def _register(self) -> None:
        rows = [row for row in durables(self.name) if row.name in self._handlers]
        for row in rows:
            handler, again, rest_seconds = self._handlers[row.name]
            batches = Batches(
                self.name,
                row.name,
                handler,
                self.store,
                again=again,
                ack_wait_seconds=self._limits.ack_wait_seconds,
                telemetry=self.telemetry,
            )
            self.bus.consume(row, batches.take, rest_seconds=rest_seconds)
            self.bus.given_up(row, partial(crashes.bury, self.name, row.name, self.store, self.telemetry))
        if self._store is not None:
            spoken = [stream.name for stream in used_by(self.name, rows)]
            self._relay = Relay(self._store, self.bus, spoken, meters=self.telemetry.meters)

    def _begin(self) -> None:
        self._spawn("bus", self.bus.died())
        if self._relay is not None:
            self._spawn("relay", self._relay.run())
        for number, answers in enumerate(self._answers):
            self._spawn(f"answers {number}", answers.run())
        for number, work in enumerate(self._loops):
            self._spawn(f"loop {number}", work())

    def _spawn(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"{self.name} {name}")
        task.add_done_callback(self._ended)
        self._tasks[name] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("a part of the work died", error=error, part=task.get_name())
        self._failure = self._failure or error
        self.ready = False
        self._end.set()

    async def _drain(self) -> None:
        """Finish what was taken, and say what is committed, while there is time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.bus.drain()
                if self._failure is None:
                    await asyncio.gather(*(answers.idle() for answers in self._answers))
                await self._end_relay()

    async def _cancel(self, names: Sequence[str] | None = None) -> None:
        await cancelled([self._tasks.pop(name) for name in (list(self._tasks) if names is None else names)])

    async def _end_relay(self) -> None:
        if self._relay is not None and (task := self._tasks.get("relay")):
            self._relay.end()
            await asyncio.wait({task})

    async def _close_pool(self) -> None:
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


def main(build: Callable[[Infrastructure, S], Service], settings: Callable[[], S]) -> None:
    """Run a service as this process: settings by environment, a clean end on SIGTERM, exit code 1 when work dies."""
    infrastructure = Infrastructure()
    service = build(infrastructure, settings())
    logs.setup(infrastructure.log_level, infrastructure.log_format, service.name)
    garbage.look_seldom()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        failed = runner.run(_run(service))
    sys.exit(1 if failed else 0)


async def _run(service: Service) -> bool:
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, service.end)
    results = await asyncio.gather(service.run(), return_exceptions=True)
    if results[0] is not None:
        log.error("the service ends", error=results[0])
    return results[0] is not None
