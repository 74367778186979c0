"""The gateway put together: facts in, HTTP out."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import uvicorn
from fastapi import FastAPI

from libs.bus.turn import Turn
from libs.config import Infrastructure
from libs.service import Service
from services.gateway.core.access import digest
from services.gateway.handlers import documents, escalations, fleet, jobs, moves, people, problems
from services.gateway.handlers.access import Gateway
from services.gateway.handlers.events import Hub
from services.gateway.handlers.facts import Facts, Folding
from services.gateway.handlers.telling import Telling
from services.gateway.settings import Settings
from services.gateway.store import documents as written
from services.gateway.store import facts as kept
from services.gateway.store import people as people_store

ADMINISTRATOR: Final = "administrator"
FORGET_SECONDS: Final = 600.0
STOP_SECONDS: Final = 5.0
READ_SECONDS: Final = 0.1  # how much later who reads may see a fact, so that a turn folds many


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return the service, ready to start."""
    service = Service("gateway", infrastructure, sweep_seconds=settings.sweep_seconds, pool_size=10)
    hub = Hub(buffer=settings.stream_buffer, streams=settings.streams)
    wake = service.loop("events", lambda: hub.feed(service.pool), every=settings.poll_seconds)
    facts = Facts(told=wake)
    service.consume("gateway-workload", Folding(facts.workload), rest_seconds=READ_SECONDS)
    service.consume("gateway-fleet", Folding(facts.fleet))
    service.consume("gateway-ledger", Folding(facts.ledger))
    service.sweep(lambda turn: written.unanswered(turn.connection, quiet_seconds=settings.sweep_seconds / 2))
    service.loop("forget", lambda: _forget(service, settings), every=FORGET_SECONDS)
    service.on_start(lambda: _furnish(service, settings))
    service.on_start(lambda: hub.feed(service.pool))
    service.metrics.gauge("triplane_gateway_event_streams", "Readers of the event stream.", lambda: hub.readers)
    gateway = Gateway(service, settings, hub)
    telling = Telling(service.telemetry)
    service.resource("http", lambda: _listen(gateway, telling), _close)
    return service


def create_api() -> FastAPI:
    """Return the HTTP interface, not yet bound to a gateway."""
    api = FastAPI(
        title="Triplane gateway",
        version="v1",  # of the interface; /v1/me says which product answers
        description="Jobs, queues and the fleet. Errors are application/problem+json, each with what mends it.",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
    )
    for module in (documents, jobs, fleet, moves, escalations, people):
        api.include_router(module.router)
    problems.register(api)
    return api


@dataclass(frozen=True, slots=True)
class _Listening:
    """An HTTP server at work."""

    server: uvicorn.Server
    task: "asyncio.Task[None]"
    hub: Hub


class _Server(uvicorn.Server):
    """A server that says when it listens and leaves the process's signals to the service."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def _listen(gateway: Gateway, telling: Telling) -> _Listening:
    api = create_api()
    api.state.gateway = gateway
    config = uvicorn.Config(
        telling.of(api),
        host=gateway.settings.host,
        port=gateway.settings.port,
        lifespan="off",
        access_log=False,
        log_config=None,
        limit_concurrency=gateway.settings.requests,
        timeout_graceful_shutdown=int(STOP_SECONDS),
        server_header=False,
    )
    listener = config.bind_socket()
    listener.set_inheritable(False)  # no other process of this machine is to answer in our place
    server = _Server(config)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]), name="gateway http")
    task.add_done_callback(lambda _: gateway.service.end())
    listens = asyncio.ensure_future(server.listening.wait())
    await asyncio.wait({listens, task}, return_when=asyncio.FIRST_COMPLETED)
    listens.cancel()
    gateway.service.log.info("listening", host=gateway.settings.host, port=listener.getsockname()[1])
    return _Listening(server, task, gateway.hub)


async def _close(listening: _Listening) -> None:
    listening.hub.end()
    listening.server.should_exit = True
    await asyncio.wait({listening.task}, timeout=STOP_SECONDS * 2)


async def _furnish(service: Service, settings: Settings) -> None:
    secret = settings.administrator()
    async with service.turn() as turn:
        if secret:
            await people_store.ensure_administrator(
                turn.connection, ADMINISTRATOR, digest(secret), settings.default_tenant
            )


async def _forget(service: Service, settings: Settings) -> None:
    async with service.turn() as turn:
        await _drop_old(turn, settings)


async def _drop_old(turn: Turn, settings: Settings) -> None:
    before = turn.now - timedelta(days=settings.days_kept)
    await kept.forget(turn.connection, before=before, events=settings.events_kept)
