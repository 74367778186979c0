"""Dispatch put together."""

from pydantic import BaseModel

from libs.config import Infrastructure
from libs.orchestrators.local import LocalRuns
from libs.pg.pool import Connection
from libs.service import Service
from services.dispatch import store
from services.dispatch.handlers import LOOKS, Handlers
from services.dispatch.settings import Settings


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return the service, ready to start."""
    service = Service("dispatch", infrastructure, sweep_seconds=settings.sweep_seconds)

    async def ask(subject: str, question: BaseModel, timeout: float) -> bytes:
        return await service.call(subject, question, timeout=timeout)

    nodes = LocalRuns(ask, timeout_seconds=settings.call_seconds, apart_seconds=settings.apart_seconds)
    handlers = Handlers(settings, nodes, service.turn)
    runs = service.metrics.table("triplane_dispatch_open_runs", "Runs that are not settled.", ("state",))

    async def measure(connection: Connection) -> None:
        runs.fill(await store.open_runs(connection))

    service.measure(measure)
    service.consume("dispatch-workload", handlers.facts, handlers.again)
    service.consume("dispatch-runtime", handlers.facts)
    service.answer("call.run.open", handlers.open)
    service.sweep(handlers.unanswered)
    handlers.wake = service.loop("work", handlers.work, every=settings.work_seconds)
    service.loop("look", handlers.look, every=settings.look_seconds / LOOKS)
    return service
