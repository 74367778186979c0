"""Health put together."""

from libs.config import Infrastructure
from libs.hearing import Hearing
from libs.pg import heard
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
    hearing = Hearing(service)

    async def watch() -> None:
        if hearing.seconds() < settings.stale_seconds:
            return  # who has not heard for so long cannot say who was silent
        async with service.turn() as turn:
            if jump := hearing.jump(turn.now):
                await heard.shift(turn.connection, jump)
            elif hearing.seconds() >= settings.stale_seconds:
                await handlers.watch(turn)

    async def settle() -> None:
        async with service.turn() as turn:
            await handlers.settle(turn)

    service.measure(Numbers(service.metrics).measure)
    service.loop("watch", watch, every=settings.watch_seconds)
    service.loop("settle", settle, every=settings.watch_seconds)
    return service
