"""Admission put together."""

from libs.config import Infrastructure
from libs.hearing import Hearing
from libs.service import Service
from services.admission import store
from services.admission.handlers import Handlers, Numbers
from services.admission.settings import Settings


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return the service, ready to start."""
    service = Service("admission", infrastructure, sweep_seconds=settings.sweep_seconds)
    handlers = Handlers(settings)
    service.consume("admission-workload", handlers.workload, handlers.again)
    service.answer("call.job.charges", handlers.charges)
    service.sweep(handlers.unanswered)
    hearing = Hearing(service, look_seconds=settings.clock_seconds)

    async def clock() -> None:
        async with service.turn() as turn:
            if jump := hearing.jump(turn.now):
                await store.shift(turn.connection, jump, most_seconds=settings.backoff_limit_seconds)
            await handlers.clock(turn)

    service.measure(Numbers(service.metrics).measure)
    service.loop("clock", clock, every=settings.clock_seconds)
    return service
