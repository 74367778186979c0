"""What each service shows at /metrics, on real servers: what happened, and nothing that grows with the jobs."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from libs.service import Service
from schemas.fleet import NodeDiscovered
from schemas.workload import GrantIssued, JobAdmitted, JobHeld
from services.admission.app import build as build_admission
from services.admission.settings import Settings as AdmissionSettings
from services.billing.app import build as build_billing
from services.billing.settings import Settings as BillingSettings
from services.dispatch.app import build as build_dispatch
from services.dispatch.settings import Settings as DispatchSettings
from services.health.app import build as build_health
from services.health.settings import Settings as HealthSettings
from services.inventory.app import build as build_inventory
from services.inventory.settings import Settings as InventorySettings
from services.placement.app import build as build_placement
from services.placement.settings import Settings as PlacementSettings
from tests.support.builders import a_grant, a_queue, a_submission, an_envelope, released
from tests.support.builders_fleet import a_class, a_cluster, a_report, an_order, fleet_fact, report_fact
from tests.support.eventually import eventually
from tests.support.placements import a_cluster as a_said_cluster
from tests.support.placements import a_node_of, admitted
from tests.support.scrapes import Scrape, scrape
from tests.support.servers import Servers
from tests.support.wire import Wire

AN_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}-")
LABELS = {
    "call",
    "cluster",
    "durable",
    "gpu_class",
    "hop",
    "kind",
    "le",
    "loop",
    "method",
    "outcome",
    "queue",
    "route",
    "service",
    "severity",
    "stage",
    "state",
    "status",
    "type",
    "version",
}


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[Service]:
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


async def shows(service: Service, name: str, lines: dict[tuple[str, ...], float]) -> None:
    """Wait until a service shows these lines of a name, and no others."""

    async def look() -> bool:
        found = (await scrape(service)).lines(name)
        assert found == lines, found
        return True

    await eventually(look)


def assert_bounded(found: Scrape) -> None:
    """No label but ours, and no value that names a job, a node or a fact."""
    assert {name for name, _ in found.labels()} <= LABELS
    assert [value for _, value in found.labels() if AN_ID.search(value)] == []


async def test_admission_shows_what_waits_and_what_is_charged_by_queue_and_class(servers: Servers, line: Wire) -> None:
    surroundings = await servers.infrastructure("admission")
    wishes = [an_envelope(a_submission(name, 3), key=a_submission(name).job) for name in ("a", "b", "c")]
    async with running(build_admission(surroundings, AdmissionSettings())) as service:
        await line.say(an_envelope(a_queue(h100=8), key="queue_main"), *wishes)
        await line.wait(JobAdmitted, 2)
        await line.wait(JobHeld)
        await shows(service, "triplane_admission_charged_devices", {("h100", "acme/main"): 6})
        await shows(service, "triplane_admission_quota_devices", {("h100", "acme/main"): 8})
        await shows(service, "triplane_admission_pending_jobs", {("any", "acme/main"): 1})
        await shows(service, "triplane_admission_pending_devices", {("any", "acme/main"): 3})
        found = await scrape(service)
    assert_bounded(found)
    taken = {kind: n for (kind,), n in found.lines("triplane_facts_taken_total").items()}
    assert taken == {"workload.request.applied.v1": 1, "workload.request.submitted.v1": 3}
    assert found.value("triplane_facts_said_total", type="workload.job.admitted.v1") == 2
    assert found.value("triplane_turn_messages_sum", durable="admission-workload") == 4
    turns = found.value("triplane_turn_messages_count", durable="admission-workload")
    assert turns == found.value("triplane_turn_seconds_count", durable="admission-workload")
    assert (found.value("triplane_ready"), found.value("triplane_measure_errors_total")) == (1, 0)


async def test_more_jobs_make_no_more_lines(servers: Servers, line: Wire) -> None:
    surroundings = await servers.infrastructure("admission")

    async def submit(names: range) -> None:
        await line.say(*(an_envelope(a_submission(f"j{n}"), key=a_submission(f"j{n}").job) for n in names))
        await line.wait(JobAdmitted, names.stop)

    async with running(build_admission(surroundings, AdmissionSettings())) as service:
        await line.say(an_envelope(a_queue(h100=1_000), key="queue_main"))
        await submit(range(5))
        await eventually(lambda: service.ready)
        before = set((await scrape(service)).samples)
        await submit(range(5, 60))
        after = set((await scrape(service)).samples)
    assert {name for name, _ in after - before} <= {"triplane_admission_pending_jobs"}


async def test_placement_shows_free_and_live_devices_and_what_became_of_gangs(servers: Servers, line: Wire) -> None:
    surroundings = await servers.infrastructure("placement")
    async with running(build_placement(surroundings, PlacementSettings(cycle_seconds=0.2))) as service:
        await line.say(a_said_cluster(), a_node_of("n1", 8), admitted("fits", 2))
        await line.wait(GrantIssued)
        await line.say(admitted("waits", 8))
        await shows(service, "triplane_placement_live_devices", {("h100",): 2})
        await shows(service, "triplane_placement_free_devices", {("h100",): 6})
        await shows(service, "triplane_placement_pending_attempts", {("h100",): 1})
        found = await scrape(service)
    assert_bounded(found)
    assert found.value("triplane_placement_granted_gangs_total") == 1
    assert found.value("triplane_leases_gate_refused_gangs_total") == 0
    assert found.value("triplane_leases_wall_lost_gangs_total") == 0
    assert found.value("triplane_leases_rewritten_total") == 0


async def test_dispatch_shows_open_runs_and_how_its_calls_end(servers: Servers, line: Wire) -> None:
    surroundings = await servers.infrastructure("dispatch")
    grant = a_grant("train")
    async with running(build_dispatch(surroundings, DispatchSettings(call_seconds=0.2))) as service:
        await line.say(an_envelope(grant, key=grant.grant))
        await shows(service, "triplane_dispatch_open_runs", {("Launched",): 1})

        async def unanswered() -> float | None:
            found = await scrape(service)
            return found.value("triplane_call_seconds_count", call="call.node.*.launch", outcome="unavailable")

        assert await eventually(unanswered)
        assert_bounded(await scrape(service))


async def test_inventory_shows_the_four_numbers_and_health_what_is_open(servers: Servers, line: Wire) -> None:
    inventory = build_inventory(await servers.infrastructure("inventory"), InventorySettings())
    health = build_health(await servers.infrastructure("health"), HealthSettings(settle_seconds=0, watch_seconds=0.1))
    async with running(inventory), running(health):
        document, gpu_class = a_cluster("n1"), a_class()
        await line.say(an_envelope(document, key="cluster_demo"), an_envelope(gpu_class, key="gpuclass_h100"))
        await line.wait(NodeDiscovered)  # a report of a cluster not yet declared is dropped
        await line.say(report_fact(a_report("n1")))
        await shows(inventory, "triplane_inventory_idle_devices", {("demo", "h100"): 8})
        await shows(inventory, "triplane_inventory_devices", {("demo", "h100"): 8})
        await shows(inventory, "triplane_inventory_reserved_devices", {("demo", "h100"): 0})
        await line.say(fleet_fact(an_order("cordon"), "order_o1"))
        await shows(inventory, "triplane_inventory_allocatable_devices", {("demo", "h100"): 0})
        await shows(health, "triplane_health_open_drains", {("completed",): 1})
        await shows(health, "triplane_health_open_incidents", {})
        assert_bounded(await scrape(inventory))
        assert_bounded(await scrape(health))


async def test_billing_shows_the_parts_that_are_not_rated(servers: Servers, line: Wire) -> None:
    surroundings = await servers.infrastructure("billing")
    grants = [a_grant("held"), a_grant("over", epoch=2)]
    async with running(build_billing(surroundings, BillingSettings())) as service:
        await line.say(*(an_envelope(grant, key=grant.grant) for grant in grants))
        await shows(service, "triplane_billing_open_parts", {("held",): 2})
        await line.say(an_envelope(released(grants[1], claimed=False), key=grants[1].grant))
        await shows(service, "triplane_billing_open_parts", {("held",): 1, ("waiting",): 1})
        assert_bounded(await scrape(service))
