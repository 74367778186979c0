"""Audit put together."""

from libs.config import Infrastructure
from libs.service import Service
from schemas.catalog import durables
from services.audit.handlers import Handlers
from services.audit.settings import Settings


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return the service, ready to start. It hears every plane and says nothing, so it has nothing to sweep."""
    service = Service("audit", infrastructure)
    handlers = Handlers(settings)
    for durable in durables("audit"):
        service.consume(durable.name, handlers.hear)
    service.answer("call.audit.query", handlers.query)
    return service
