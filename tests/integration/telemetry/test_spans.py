"""Spans of real services: one trace over all of a job, and the way to a collector."""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import SecretStr

from libs.config import Infrastructure
from libs.telemetry.otlp import recorder
from libs.telemetry.telemetry import telemetry
from libs.telemetry.traces import Kind, Span
from schemas.ids import JobId
from schemas.trace import Context, parse, root_of, trace_of
from schemas.workload import JobAdmitted
from services.admission.app import build as build_admission
from services.admission.settings import Settings as AdmissionSettings
from services.gateway.app import build as build_gateway
from services.gateway.settings import Settings as GatewaySettings
from tests.support import scrapes
from tests.support.eventually import eventually
from tests.support.gateways import ADMIN, FLEET, a_job, free_port
from tests.support.scrapes import recorded
from tests.support.servers import Servers
from tests.support.wire import wire

CALLER = Context("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", sampled=True)
SPAN = Span("run", Kind.INTERNAL, Context("1" * 32, "2" * 16, sampled=True), "3" * 16, 10**18, 10**18 + 5, (CALLER,))
LOADED = "import services.admission.app, sys; print('opentelemetry.sdk' in sys.modules, 'requests' in sys.modules)"


@dataclass
class Collector:
    """What a collector was sent."""

    port: int = 0
    heard: list[tuple[str, ExportTraceServiceRequest]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length"))
        self.heard.append((head.splitlines()[0], ExportTraceServiceRequest.FromString(await reader.readexactly(size))))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def a_collector() -> AsyncIterator[Collector]:
    collector = Collector()
    server = await asyncio.start_server(collector.serve, "127.0.0.1", 0)
    collector.port = server.sockets[0].getsockname()[1]
    try:
        yield collector
    finally:
        server.close()


async def test_all_facts_of_a_job_are_in_one_trace_through_every_service(servers: Servers) -> None:
    address = f"http://127.0.0.1:{(port := free_port())}"
    settings = GatewaySettings(port=port, admin_token=SecretStr(ADMIN))
    gateway = build_gateway(await servers.infrastructure("gateway"), settings)
    admission = build_admission(await servers.infrastructure("admission"), AdmissionSettings())
    asked, taken = (recorded(each.telemetry.tracer, each.name) for each in (gateway, admission))
    async with AsyncExitStack() as stack:
        line = await stack.enter_async_context(wire(servers))
        for service in (gateway, admission):
            await service.start()
            stack.push_async_callback(service.stop)
        headers = {"Authorization": f"Bearer {ADMIN}", "traceparent": CALLER.traceparent}
        asker = await stack.enter_async_context(httpx.AsyncClient(base_url=address, headers=headers))
        for tenant in ("acme", "zoo"):
            await asker.post("/v1/tenants", json={"name": tenant})
        answer = await asker.post("/v1/documents", content=f"{FLEET}---\n{a_job()}")
        job = JobId(answer.json()["results"][-1]["id"])
        await line.wait(JobAdmitted)
        facts = [fact for fact in line.heard if getattr(fact.data, "job", None) == job]
        spans = {scrapes.span_of(span): span for span in await eventually(taken.get_finished_spans)}
        requests = [span for span in asked.get_finished_spans() if span.name == "POST /v1/documents"]
    told = [(fact.type, parse(fact.traceparent)) for fact in facts]
    assert {context.trace for _, context in told if context} == {trace_of(job)}
    assert {kind for kind, _ in told} == {
        "workload.request.submitted.v1",
        "workload.job.queued.v1",
        "workload.job.quota_reserved.v1",
        "workload.job.admitted.v1",
    }
    assert {scrapes.parent_of(spans[context.span]) for _, context in told[1:] if context} == {root_of(job)}
    assert [(scrapes.trace_of(span), scrapes.parent_of(span)) for span in requests] == [(CALLER.trace, CALLER.span)]
    assert root_of(job) in scrapes.links_of(requests[0])


async def test_spans_reach_a_collector_under_our_ids() -> None:
    async with a_collector() as collector:
        sender = recorder("admission", f"http://127.0.0.1:{collector.port}")
        sender.record(SPAN)
        await sender.close()
    ((request, body),) = collector.heard
    (resource,) = body.resource_spans
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    (span,) = resource.scope_spans[0].spans
    assert request == "post /v1/traces http/1.1"
    assert (attributes["service.name"], attributes["service.namespace"]) == ("admission", "triplane")
    assert (span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()) == (
        "run",
        "1" * 32,
        "2" * 16,
        "3" * 16,
    )
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (10**18, 10**18 + 5)
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in span.links] == [(CALLER.trace, CALLER.span)]


async def test_a_collector_that_is_away_keeps_no_service_from_ending() -> None:
    sender = recorder("admission", f"http://127.0.0.1:{free_port()}/v1/traces")
    for number in range(600):
        sender.record(replace(SPAN, context=Context("1" * 32, f"{number + 1:016x}", sampled=True)))
    began = time.monotonic()
    await sender.close()
    assert time.monotonic() - began < 5


async def test_without_the_packages_a_service_works_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "libs.telemetry.otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    told = telemetry("admission", Infrastructure(otlp_endpoint="http://127.0.0.1:4318"))
    with caplog.at_level(logging.ERROR):
        told.open(Infrastructure(otlp_endpoint="http://127.0.0.1:4318"))
    ours = [record for record in caplog.records if record.name.startswith("libs.")]  # others may still send elsewhere
    assert [record.getMessage() for record in ours] == ["no spans are sent: the packages of the extra otlp are missing"]
    with told.tracer.activity("work", Kind.INTERNAL) as doing:
        assert doing is None


def test_without_an_endpoint_nothing_of_it_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
