"""Numbers as Prometheus reads them: right, bounded, and none rather than an old one."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from libs.errors import UnavailableError
from libs.pg.outbox import Backlog
from libs.probes import Probes
from libs.telemetry.meters import Meters, call_of
from libs.telemetry.metrics import OTHER, SERIES, Metrics
from tests.support.scrapes import http_get


async def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families((await metrics.text()).decode())
    found = (
        (sample.name, tuple(sorted(sample.labels.items())), sample.value) for f in families for sample in f.samples
    )
    return {(name, labels): value for name, labels, value in found if not name.startswith("process_")}


async def test_a_table_shows_what_it_was_filled_with_last() -> None:
    metrics = Metrics()
    table = metrics.table("triplane_test_devices", "Devices.", ("queue", "gpu_class"))
    table.fill({("acme/a", "h100"): 3, ("acme/b", "h100"): 4})
    table.fill({('quo"te\\d', "h100"): 5})
    found = {labels: v for (name, labels), v in (await samples(metrics)).items() if name == "triplane_test_devices"}
    assert found == {(("gpu_class", "h100"), ("queue", 'quo"te\\d')): 5}


async def test_a_table_with_too_many_lines_adds_up_the_rest() -> None:
    metrics = Metrics()
    table = metrics.table("triplane_test_jobs", "Jobs.", ("queue",))
    table.fill({(f"acme/{number:05}",): 1 for number in range(SERIES + 500)})
    found = {labels: v for (name, labels), v in (await samples(metrics)).items() if name == "triplane_test_jobs"}
    assert len(found) == SERIES
    assert found[("queue", OTHER),] == 501
    assert sum(found.values()) == SERIES + 500


async def test_a_measure_is_taken_when_somebody_reads_and_not_again_at_once() -> None:
    metrics = Metrics(again_seconds=60)
    table = metrics.table("triplane_test_jobs", "Jobs.", ())
    taken: list[int] = []

    async def measure() -> None:
        taken.append(1)
        table.fill({(): len(taken)})

    metrics.measure(measure)
    readings = await asyncio.gather(*(samples(metrics) for _ in range(5)))
    assert [found["triplane_test_jobs", ()] for found in readings] == [1] * 5


async def test_a_measure_that_fails_shows_nothing_rather_than_the_old() -> None:
    metrics = Metrics(again_seconds=0)
    table = metrics.table("triplane_test_jobs", "Jobs.", ())
    errors: list[Exception] = []

    async def measure() -> None:
        if errors:
            raise errors.pop()
        table.fill({(): 7})

    metrics.measure(measure)
    assert (await samples(metrics))["triplane_test_jobs", ()] == 7
    errors.append(UnavailableError("Postgres is away"))
    found = await samples(metrics)
    assert ("triplane_test_jobs", ()) not in found
    assert found["triplane_measure_errors_total", ()] == 1
    assert (await samples(metrics))["triplane_test_jobs", ()] == 7


async def test_what_is_read_anew_is_a_gauge_or_a_counter() -> None:
    metrics = Metrics()
    numbers = iter([3, 4])
    metrics.gauge("triplane_test_open", "Open.", lambda: 2)
    metrics.counted("triplane_test_lost", "Lost.", lambda: next(numbers))
    assert [(await samples(metrics))["triplane_test_lost_total", ()] for _ in range(2)] == [3, 4]
    text = (await Metrics().text()).decode()
    assert "triplane_test_open" not in text


async def test_no_counter_is_shown_twice() -> None:
    meters = Meters("admission")
    meters.taken(["workload.job.admitted.v1"] * 3)
    meters.waits(Backlog(4, 1.5))
    found = await samples(meters.metrics)
    assert found["triplane_facts_taken_total", (("type", "workload.job.admitted.v1"),)] == 3
    assert found["triplane_relay_backlog_facts", ()] == 4
    assert found["triplane_relay_oldest_unsent_seconds", ()] == 1.5
    assert [name for name, _ in found if name.endswith("_created")] == []


def test_calls_are_told_apart_by_verb_and_not_by_node() -> None:
    asked = ["call.grant.claim", "call.node.node_5f0c.launch", "call.node.node_77aa.launch", "call.node.n.made_up", "x"]
    assert [call_of(each) for each in asked] == [
        "call.grant.claim",
        "call.node.*.launch",
        "call.node.*.launch",
        OTHER,
        OTHER,
    ]


async def test_numbers_are_served_beside_health() -> None:
    metrics = Metrics()
    metrics.counter("triplane_test", "Test.").inc()
    probes = Probes(list, metrics.text)
    await probes.open("127.0.0.1", 0)
    try:
        head, body = await http_get(probes.port, "/metrics")
        assert head.splitlines()[:2] == ["HTTP/1.1 200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8"]
        assert f"Content-Length: {len(body.encode())}" in head
        assert "\ntriplane_test_total 1.0\n" in body
        assert "\nprocess_cpu_seconds_total " in body
    finally:
        await probes.close()
