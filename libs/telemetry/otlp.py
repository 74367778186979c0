"""Sends spans by OTLP over HTTP, from a thread of its own. Needs the extra ``otlp``; loaded only with an endpoint."""

from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from libs.telemetry.spans import SdkRecorder

PATH: Final = "/v1/traces"
EXPORT_SECONDS: Final = 3.0  # one request and its retries; what waits too long is dropped
QUEUE: Final = 8_192  # spans: some seconds of a busy service


def recorder(service: str, endpoint: str) -> SdkRecorder:
    """Return what sends a service's spans to a collector. Never blocks; what the collector does not take is dropped."""
    exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/").removesuffix(PATH) + PATH, timeout=EXPORT_SECONDS)
    return SdkRecorder(service, BatchSpanProcessor(exporter, max_queue_size=QUEUE))
