"""Health put together."""

from libs.config import Infrastructure
from libs.hearing import Hearing
from libs.service import FOLLOW_SECONDS, Service
from services.health.handlers import Handlers, Numbers
from services.health.settings import Settings


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return the service, ready to start."""
    service = Service("health", infrastructure, sweep_seconds=settings.sweep_seconds)
    handlers = Handlers(settings)
    service.consume("health-workload", handlers.workload, rest_seconds=FOLLOW_SECONDS)
    service.consume("health-fleet", handlers.hear)
    service.consume("health-runtime", handlers.hear)
    service.sweep(handlers.unanswered)
    hearing = Hearing(service, look_seconds=settings.watch_seconds)

    async def watch() -> None:
        hearing.seconds()  # a store that is away is noticed, too
        async with service.turn() as turn:
            if await hearing.look(turn.connection) >= settings.stale_seconds:
                await handlers.watch(turn)  # who has not heard for so long cannot say who was silent

    async def settle() -> None:
        async with service.turn() as turn:
            await handlers.settle(turn)

    service.measure(Numbers(service.metrics).measure)
    service.loop("watch", watch, every=settings.watch_seconds)
    service.loop("settle", settle, every=settings.watch_seconds)
    return service
