"""Billing put together."""

from libs.config import Infrastructure
from libs.pg.pool import Connection
from libs.service import FOLLOW_SECONDS, Service
from services.billing import store
from services.billing.handlers import Handlers
from services.billing.settings import Settings

WATCH_SECONDS = 60.0  # as often as a person could act on it


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return the service, ready to start. It waits for nobody's answer, so it has nothing to sweep."""
    service = Service("billing", infrastructure)
    handlers = Handlers(settings)
    parts = service.metrics.table("triplane_billing_open_parts", "Parts of grants that are not rated.", ("stage",))

    async def measure(connection: Connection) -> None:
        parts.fill(await store.open_parts(connection))

    service.measure(measure)
    service.consume("billing-workload", handlers.workload, rest_seconds=FOLLOW_SECONDS)

    async def rate() -> None:
        more = True
        while more:
            async with service.turn() as turn:
                more = await handlers.rate(turn)

    async def watch() -> None:
        async with service.turn() as turn:
            await handlers.watch(turn)

    service.loop("rate", rate, every=settings.rate_seconds)
    service.loop("watch", watch, every=WATCH_SECONDS)
    return service
