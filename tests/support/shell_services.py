"""Two small services for tests of the shell: one says wishes, the other queues each once and says so."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from libs.service import Service, Turn
from schemas.base import Envelope, Event, fact_type
from schemas.ids import fact_id
from schemas.workload import JobQueued, RequestSubmitted
from tests.support.builders import a_submission, at
from tests.support.shell_worlds import World

SCOPE = "acme"
SUBMITTED = "workload.request.submitted.v1"
QUEUED = "workload.job.queued.v1"
React = Callable[[Turn, Envelope], Awaitable[None]]


def submitted(name: str, version: int = 1) -> Envelope:
    """Return the fact that a job was wished."""
    return a_fact(a_submission(name), name, version)


def a_fact(event: Event, key: str, version: int = 1, *, source: str = "gateway") -> Envelope:
    """Return an event in its envelope."""
    kind = fact_type(type(event))
    return Envelope(fact_id(kind, key, version), kind, source, at(0), SCOPE, key, version, event)


def a_queued(wish: Event) -> JobQueued:
    """Return the answer to a wish."""
    assert isinstance(wish, RequestSubmitted), wish
    return JobQueued(
        job=wish.job,
        attempt=1,
        tenant=wish.tenant,
        name=wish.name,
        queue=wish.queue,
        priority=wish.priority,
        demand=wish.demand,
    )


def admission(world: World, react: React | None = None, **options: Any) -> Service:
    """Return the service that notes each wish as an effect and answers it with JobQueued."""
    service = world.service("admission", **options)

    async def handle(turn: Turn, facts: Sequence[Envelope]) -> None:
        for heard in facts:
            if react:
                await react(turn, heard)
            await world.effect(turn, heard.key)
            turn.emit(a_queued(heard.data), scope=SCOPE, key=heard.key, version=1, cause=heard)

    service.consume("admission-workload", handle)
    return service


def gateway(world: World, **options: Any) -> Service:
    """Return the service that wishes, and notes every answer as an effect."""
    service = world.service("gateway", **options)

    async def handle(turn: Turn, facts: Sequence[Envelope]) -> None:
        for heard in facts:
            await world.effect(turn, heard.key)

    service.consume("gateway-workload", handle)
    return service


async def wish(service: Service, *names: str) -> None:
    """Wish jobs in one turn of the gateway."""
    async with service.turn() as turn:
        for name in names:
            turn.emit(a_submission(name), scope=SCOPE, key=name, version=1)
