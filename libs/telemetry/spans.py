"""Spans by OpenTelemetry's SDK, under ids that we give. Loaded only where spans are recorded."""

import asyncio
import threading
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context as Surroundings
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_NAMESPACE, Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from libs.telemetry.traces import LINKS, Span
from schemas.trace import Context

CLOSE_SECONDS: Final = 3.0  # a collector that is away must not keep a service from ending


class SdkRecorder:
    """Hands spans to a processor of OpenTelemetry's."""

    def __init__(self, service: str, processor: SpanProcessor) -> None:
        self._ids = _Ids()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # what comes here was sampled before
            resource=Resource.create({SERVICE_NAME: service, SERVICE_NAMESPACE: "triplane"}),
            id_generator=self._ids,
            span_limits=SpanLimits(max_links=LINKS),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("triplane")

    def record(self, span: Span) -> None:
        """Take a span."""
        self._ids.context = span.context
        made = self._tracer.start_span(
            span.name,
            context=_surroundings(span),
            kind=trace.SpanKind[span.kind.value],
            attributes=span.attributes,
            links=[trace.Link(_named(link.trace, link.span)) for link in span.links],
            start_time=span.began,
        )
        made.end(span.ended)

    async def close(self) -> None:
        """Send what was taken, but not for long."""
        closing = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)


class _Ids(IdGenerator):
    """Gives the ids of the span that is being made."""

    context = Context("0" * 32, "0" * 16, sampled=False)

    def generate_span_id(self) -> int:
        return int(self.context.span, 16)

    def generate_trace_id(self) -> int:
        return int(self.context.trace, 16)

    def is_trace_id_random(self) -> bool:
        return True  # the lowest 56 bits are evenly spread, which is what this promises


def _surroundings(span: Span) -> Surroundings:
    if span.parent is None:
        return Surroundings()
    return trace.set_span_in_context(trace.NonRecordingSpan(_named(span.context.trace, span.parent)), Surroundings())


def _named(found: str, span: str) -> trace.SpanContext:
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    return trace.SpanContext(int(found, 16), int(span, 16), is_remote=True, trace_flags=flags)
