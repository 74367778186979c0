"""Admission put together."""

from functools import partial

from libs.config import Infrastructure
from libs.hearing import Hearing
from libs.service import Service
from services.admission import store
from services.admission.handlers import Handlers, Numbers
from services.admission.settings import Settings


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return the service, ready to start."""
    service = Service("admission", infrastructure, sweep_seconds=settings.sweep_seconds)
    numbers = Numbers(service.metrics)
    handlers = Handlers(settings, numbers)
    service.consume("admission-workload", handlers.workload, handlers.again)
    service.answer("call.job.charges", handlers.charges)
    service.sweep(handlers.unanswered)
    correct = partial(store.shift, most_seconds=settings.backoff_limit_seconds)
    hearing = Hearing(service, look_seconds=settings.clock_seconds, correct=correct)

    async def clock() -> None:
        hearing.seconds()  # a store that is away is noticed, too
        async with service.turn() as turn:
            await handlers.clock(turn, await hearing.look(turn.connection))

    service.measure(numbers.measure)
    service.loop("clock", clock, every=settings.clock_seconds)
    return service
