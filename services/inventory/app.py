"""Inventory put together."""

from pydantic import BaseModel

from libs.config import Infrastructure
from libs.hearing import Hearing
from libs.orchestrators.local import LocalNodes
from libs.service import FOLLOW_SECONDS, Service
from services.inventory.handlers.facts import FourNumbers, Handlers
from services.inventory.handlers.moves import Moves
from services.inventory.settings import Settings


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return the service, ready to start. Nobody answers its facts but by listening, so it has nothing to sweep."""
    service = Service("inventory", infrastructure)

    async def ask(subject: str, question: BaseModel, timeout: float) -> bytes:
        return await service.call(subject, question, timeout=timeout)

    moves = Moves(service, LocalNodes(ask, timeout_seconds=settings.move_call_seconds), settings)
    moves.wake = service.loop("moves", moves.run, every=settings.move_seconds)
    service.loop("marks", moves.mark_again, every=settings.move_seconds)
    service.answer("call.move.start", moves.start)
    service.answer("call.move.cancel", moves.cancel)
    handlers = Handlers(settings, wake_moves=moves.wake)
    service.consume("inventory-workload", handlers.workload, rest_seconds=FOLLOW_SECONDS)
    service.consume("inventory-fleet", handlers.fleet)
    service.consume("inventory-runtime", handlers.runtime)
    hearing = Hearing(service, look_seconds=settings.watch_seconds)

    async def watch() -> None:
        hearing.seconds()  # a store that is away is noticed, too
        async with service.turn() as turn:
            if await hearing.look(turn.connection) >= settings.stale_seconds:
                await handlers.watch(turn)  # who has not heard for so long cannot say who was silent

    async def census() -> None:
        async with service.turn() as turn:
            await handlers.census(turn)

    service.measure(FourNumbers(service.metrics).measure)
    service.loop("watch", watch, every=settings.watch_seconds)
    service.loop("census", census, every=settings.census_seconds)
    return service
