"""Numbers and spans of one service together, as its turns, loops and calls need them."""

import importlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from libs.config import Infrastructure
from libs.errors import RefusedError, TriplaneError
from libs.log import get_logger
from libs.telemetry.meters import Meters
from libs.telemetry.traces import Cause, Tracer
from schemas.base import Envelope

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What one service tells about itself."""

    service: str
    meters: Meters
    tracer: Tracer

    def said(self, facts: Sequence[tuple[Envelope, Cause]]) -> None:
        """Note facts that were committed to be said, each with what it answers."""
        if facts:
            self.meters.said(envelope.type for envelope, _ in facts)
            self.tracer.said(facts)

    @contextmanager
    def asking(self, call: str) -> Iterator[str | None]:
        """Tell of a question: its time, how it ended, and one span; yields the traceparent that goes with it."""
        began, outcome = time.perf_counter(), "cancelled"
        try:
            with self.tracer.asking(call) as traceparent:
                yield traceparent
            outcome = "answered"
        except TriplaneError as error:
            outcome = "refused" if isinstance(error, RefusedError) else "unavailable"
            raise
        finally:
            self.meters.call_seconds.labels(call, outcome).observe(time.perf_counter() - began)

    def open(self, infrastructure: Infrastructure) -> None:
        """Send spans, where an endpoint is set. Without the packages for it the service works on, and says so."""
        if infrastructure.otlp_endpoint is None:
            return
        try:
            otlp = importlib.import_module("libs.telemetry.otlp")  # a third of a second that most need not spend
        except ImportError as error:
            log.error("no spans are sent: the packages of the extra otlp are missing", error=error)
        else:
            self.tracer.open(otlp.recorder(self.service, infrastructure.otlp_endpoint))


def telemetry(service: str, infrastructure: Infrastructure) -> Telemetry:
    """Return the telemetry of a service; nothing is sent before ``open``."""
    return Telemetry(service, Meters(service), Tracer(ratio=infrastructure.trace_ratio))


@cache
def unread() -> Telemetry:
    """Return a telemetry that nobody reads, for parts that work without a service."""
    return Telemetry("none", Meters("none"), Tracer())
