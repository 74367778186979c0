"""Audit put together."""

from libs.config import Infrastructure
from libs.service import FOLLOW_SECONDS, Service
from schemas.catalog import durables
from services.audit.handlers import Handlers, Trail
from services.audit.settings import Settings


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return the service, ready to start. It hears every plane and says nothing, so it has nothing to sweep."""
    service = Service("audit", infrastructure)
    handlers, trail = Handlers(settings), Trail()
    for durable in durables("audit"):
        service.consume(durable.name, trail, rest_seconds=FOLLOW_SECONDS)
    service.answer("call.audit.query", handlers.query)
    return service
