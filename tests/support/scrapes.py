"""A service's numbers as Prometheus would read them, and its spans as a collector would."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext
from prometheus_client.parser import text_string_to_metric_families

from libs.service import Service
from libs.telemetry.spans import SdkRecorder
from libs.telemetry.traces import Tracer

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Scrape:
    """What one reading showed: name and labels to the number."""

    samples: dict[tuple[str, Labels], float]

    def value(self, name: str, **labels: str) -> float | None:
        """Return one number; None: it is not shown."""
        return self.samples.get((name, tuple(sorted(labels.items()))))

    def lines(self, name: str) -> dict[tuple[str, ...], float]:
        """Return label values (by the labels' names) to the numbers of one name."""
        return {tuple(value for _, value in labels): v for (known, labels), v in self.samples.items() if known == name}

    def labels(self) -> Iterator[tuple[str, str]]:
        """Yield every label with its value."""
        for _, labels in self.samples:
            yield from labels


async def http_get(port: int, path: str) -> tuple[str, str]:
    """Return the head and the body that a health endpoint answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return head, body


async def scrape(service: Service) -> Scrape:
    """Read a service's numbers, counted anew."""
    service.metrics.again_seconds = 0
    head, body = await http_get(service.probes.port, "/metrics")
    assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), head
    families = list(text_string_to_metric_families(body))
    return Scrape({(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples})


def recorded(tracer: Tracer, service: str) -> InMemorySpanExporter:
    """Record a service's spans from now on."""
    exporter = InMemorySpanExporter()
    tracer.open(SdkRecorder(service, SimpleSpanProcessor(exporter)))
    return exporter


def trace_of(span: ReadableSpan) -> str:
    """Return the trace of a span, 32 hex digits."""
    return f"{_context(span).trace_id:032x}"


def span_of(span: ReadableSpan) -> str:
    """Return the id of a span, 16 hex digits."""
    return f"{_context(span).span_id:016x}"


def parent_of(span: ReadableSpan) -> str | None:
    """Return the id of a span's parent."""
    return f"{span.parent.span_id:016x}" if span.parent is not None else None


def links_of(span: ReadableSpan) -> set[str]:
    """Return the ids of the spans that a span is linked to."""
    return {f"{link.context.span_id:016x}" for link in span.links}


def _context(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context
