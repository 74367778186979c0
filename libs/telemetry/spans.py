"""Spans in OpenTelemetry's form. Loaded only where spans are recorded.

They are built whole, when they are over: a tracer of the SDK would draw their ids itself and take ten times as long.
"""

import asyncio
import threading
from typing import Final

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_NAMESPACE, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

from libs.telemetry.traces import Span

CLOSE_SECONDS: Final = 3.0  # a collector that is away must not keep a service from ending
_SCOPE: Final = InstrumentationScope("triplane")
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class SdkRecorder:
    """Hands spans to a processor of OpenTelemetry's."""

    def __init__(self, service: str, processor: SpanProcessor) -> None:
        self._processor = processor
        self._resource = Resource.create({SERVICE_NAME: service, SERVICE_NAMESPACE: "triplane"})

    def record(self, span: Span) -> None:
        """Take a span."""
        found = int(span.context.trace, 16)
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=_context(found, span.context.span),
                parent=_context(found, span.parent) if span.parent is not None else None,
                resource=self._resource,
                attributes=span.attributes,
                links=[Link(_context(int(link.trace, 16), link.span)) for link in span.links],
                kind=SpanKind[span.kind.value],
                start_time=span.began,
                end_time=span.ended,
                instrumentation_scope=_SCOPE,
            )
        )

    async def close(self) -> None:
        """Send what was taken, but not for long."""
        closing = threading.Thread(target=self._processor.shutdown, name="last spans", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)


def _context(found: int, span: str) -> SpanContext:
    return SpanContext(found, int(span, 16), is_remote=False, trace_flags=_SAMPLED)
