"""The fleet, its nodes and queues, orders and the bill, as they are after facts came over the bus."""

from typing import Any

import pytest

from schemas.fleet import IncidentOpened, MarkEffect, NodeWentStale, Severity
from schemas.ids import IncidentId
from schemas.reasons import Code, Layer
from schemas.workload import RequestOrdered
from tests.support.builders import DEMO, NOON, a_grant, a_job_id, a_node_id, a_part, released, revoked, suspected
from tests.support.builders_gateway import (
    a_mark,
    a_node,
    admitted,
    discovered,
    evicted,
    queued,
    rated,
    reserved,
    said,
    why,
)
from tests.support.eventually import eventually
from tests.support.gateways import Asking, a_job

JOB = a_job_id()
GRANT = a_grant("train", a_part("n1", 4))
PREEMPTING = """\
apiVersion: triplane/v1
kind: Queue
metadata: {name: main, tenant: acme}
spec: {quotas: [{class: h100, nominal: 16}], preemption: {withinQueue: LowerPriority}}
"""


async def shows(asking: Asking, path: str, expected: Any, **query: Any) -> None:
    """Wait until a GET answers this."""

    async def look() -> bool:
        answer = (await asking.admin.get(path, params=query)).json()
        assert answer == expected, answer
        return True

    await eventually(look)


def line(**more: Any) -> dict[str, Any]:
    zeros = dict.fromkeys(("total", "allocatable", "reserved", "idle", "held", "unknown"), 0)
    return {"cluster": "demo", "gpu_class": "h100", **zeros, **more}


async def test_the_four_numbers_of_the_fleet_and_neither_for_a_silent_node(asking: Asking) -> None:
    await asking.line.say(
        discovered(a_node("n1")),
        discovered(a_node("n2")),
        discovered(a_node("n3", marks=(a_mark(),))),
        discovered(a_node("n4", 2, gpu_class=None)),
        said(GRANT, key=GRANT.grant, version=1),
    )
    whole = line(total=24, allocatable=16, reserved=4, idle=12, held=8)
    unclassed = line(gpu_class=None, total=2)
    await shows(asking, "/v1/fleet", [unclassed, whole])
    node = a_node_id("n2")
    stale = NodeWentStale(node=node, cluster=DEMO, last_report_at=NOON)
    await asking.line.say(said(stale, key=node, version=2, scope=DEMO))
    silent = line(total=24, allocatable=8, reserved=4, idle=4, held=8, unknown=8)
    await shows(asking, "/v1/fleet", [unclassed, silent])
    await asking.line.say(said(revoked(GRANT), key=GRANT.grant, version=2))
    await asking.line.say(said(released(GRANT), key=GRANT.grant, version=3))
    await shows(asking, "/v1/fleet", [unclassed, {**silent, "reserved": 0, "idle": 8}])


async def test_nodes_say_how_they_are_and_what_ails_them(asking: Asking) -> None:
    node = a_node_id("n2")
    incident = IncidentOpened(
        incident=IncidentId("incident_1"),
        cluster=DEMO,
        node=node,
        severity=Severity.STALE,
        reason=why(Code.HEARTBEAT_LOST, "no report for 30 s", Layer.FLEET),
        since=NOON,
    )
    await asking.line.say(
        discovered(a_node("n1", place={"rack": "r1"})),
        discovered(a_node("n2", marks=(a_mark(effect=MarkEffect.DRAIN),))),
        said(incident, key="incident_1", version=1, scope=DEMO),
    )

    async def look() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await asking.admin.get("/v1/nodes")).json()["items"]
        assert len(items) == 2, items
        assert items[1]["incidents"], items
        return items

    one, two = await eventually(look)
    assert one == {
        "id": a_node_id("n1"),
        "cluster": "demo",
        "name": "n1",
        "devices": {"h100": 8},
        "reserved": 0,
        "state": "ready",
        "seen_at": None,
        "place": {"rack": "r1"},
        "marks": [],
        "incidents": [],
    }
    assert (two["state"], two["incidents"]) == (
        "drained",
        [
            {
                "severity": "stale",
                "code": "HeartbeatLost",
                "message": "no report for 30 s",
                "since": "2026-01-15T12:00:00Z",
            }
        ],
    )
    first = (await asking.admin.get("/v1/nodes", params={"limit": 1})).json()
    second = (await asking.admin.get("/v1/nodes", params={"limit": 1, "cursor": first["next"]})).json()
    assert [page["items"][0]["name"] for page in (first, second)] == ["n1", "n2"]
    assert second["next"] is None


async def test_an_order_about_a_node_is_said_with_its_owner(asking: Asking) -> None:
    await asking.line.say(discovered(a_node("n1")))
    await eventually(lambda: _known(asking, "n1"))
    answer = await asking.admin.post("/v1/nodes/n1/orders", json={"order": "drain", "reason": "fan is loud"})
    assert answer.status_code == 202, answer.text
    (fact,) = await asking.line.wait(RequestOrdered)
    assert fact == RequestOrdered(
        order="drain",
        cluster=DEMO,
        node=a_node_id("n1"),
        owner="administrator",
        reason="fan is loud",
        session=answer.json()["id"],
    )
    unknown = await asking.admin.post("/v1/nodes/n9/orders", json={"order": "drain", "reason": "x"})
    assert (unknown.status_code, unknown.json()["detail"]) == (404, "there is no node n9")
    silent = await asking.admin.post("/v1/nodes/n1/orders", json={"order": "drain", "reason": ""})
    assert (silent.status_code, silent.json()["field"]) == (422, "reason")


async def _known(asking: Asking, name: str) -> bool:
    return name in [node["name"] for node in (await asking.admin.get("/v1/nodes")).json()["items"]]


async def test_queues_show_what_is_used_and_waits_and_a_quota_beyond_the_fleet(asking: Asking) -> None:
    await asking.submit("---\n".join(a_job(name, devices=4) for name in ("train", "wait")))
    await asking.line.say(
        discovered(a_node("n1")),
        said(queued(), key=JOB, version=1),
        said(reserved(devices=4), key=JOB, version=2),
        said(admitted(), key=JOB, version=3),
        said(GRANT, key=GRANT.grant, version=1),
    )
    main = {"tenant": "acme", "queue": "main", "order": "BestEffortFIFO", "preemption": "Never"}
    warning = "quota 16 is more than the 8 h100 that exist"
    taken = {**main, "gpu_class": "h100", "nominal": 16, "used": 4, "waiting": 1, "admitted": 1, "warning": warning}
    await shows(asking, "/v1/queues", [taken], tenant="acme")
    await asking.line.say(
        said(revoked(GRANT, Code.DRAINED), key=GRANT.grant, version=2), said(evicted(), key=JOB, version=4)
    )
    await shows(asking, "/v1/queues", [{**taken, "waiting": 2, "admitted": 0}], tenant="acme")
    await asking.line.say(said(released(GRANT), key=GRANT.grant, version=3))
    after = {**taken, "used": 0, "waiting": 2, "admitted": 0}
    await shows(asking, "/v1/queues", [after], tenant="acme")
    await asking.submit(PREEMPTING)
    await shows(asking, "/v1/queues", [{**after, "preemption": "LowerPriority"}], tenant="acme")


async def test_what_parts_give_back_before_their_gang_is_used_no_more_nor_is_what_is_lost(asking: Asking) -> None:
    gang = a_grant("train", *(a_part(f"n{rank + 1}", 4, rank=rank) for rank in range(3)))
    await asking.submit(a_job("train", devices=4))
    await asking.line.say(
        discovered(a_node("n1")),
        said(queued(), key=JOB, version=1),
        said(reserved(devices=12), key=JOB, version=2),
        said(admitted(), key=JOB, version=3),
        said(gang, key=gang.grant, version=1),
    )
    warning = "quota 16 is more than the 8 h100 that exist"
    main = {"tenant": "acme", "queue": "main", "order": "BestEffortFIFO", "preemption": "Never"}
    row = {**main, "gpu_class": "h100", "nominal": 16, "waiting": 0, "admitted": 1, "warning": warning}
    await shows(asking, "/v1/queues", [{**row, "used": 12}], tenant="acme")
    alone = released(gang, 0, remaining=2, alone=True)
    await asking.line.say(said(alone, key=gang.grant, version=3))
    await shows(asking, "/v1/queues", [{**row, "used": 8}], tenant="acme")
    lost = suspected(gang, Code.NODE_LOST).model_copy(
        update={"node": gang.parts[1].node, "devices": tuple(device.device for device in gang.parts[1].devices)}
    )
    await asking.line.say(said(lost, key=gang.grant, version=4))
    await shows(asking, "/v1/queues", [{**row, "used": 4}], tenant="acme")
    await asking.line.say(said(released(gang, 1, remaining=1, alone=True), key=gang.grant, version=5))
    await shows(asking, "/v1/queues", [{**row, "used": 4}], tenant="acme")


async def test_the_bill_adds_up_rated_usage_once(asking: Asking) -> None:
    mine, lost = rated("acme"), rated("platform-loss", usage="usage_2")
    await asking.line.say(said(mine, key="usage_1", version=1), said(lost, key="usage_2", version=1))
    await asking.line.say(said(mine, key="usage_1", version=1), again=".2")
    row = {"queue": "main", "gpu_class": "h100", "currency": "USD", "device_seconds": 14_400}
    both = [
        {"account": "acme", **row, "amount_micros": 10_000_000},
        {"account": "platform-loss", **row, "amount_micros": 10_000_000},
    ]
    await shows(asking, "/v1/bill", both)
    await shows(asking, "/v1/bill", both[:1], tenant="acme", since="2026-01-15T13:00:00Z")
    await shows(asking, "/v1/bill", [], until="2026-01-15T13:00:00Z")


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("/v1/bill", {"since": "2026-01-01"}, "since"),
        ("/v1/bill", {"since": "0001-01-01T00:00:00+14:00"}, "since"),
        ("/v1/audit", {"until": "9999-12-31T23:59:59-14:00"}, "until"),
        ("/v1/audit", {"until": "2026-01-01T00:00:00"}, "until"),
        ("/v1/audit", {"after": str(1 << 63)}, "after"),
        ("/v1/events", {"after": str(1 << 63)}, "after"),
        ("/v1/jobs", {"cursor": "MDAwMS0wMS0wMVQwMDowMDowMCsxNDowMCB4"}, "cursor"),
        ("/v1/jobs", {"cursor": "MjAyNi0wMS0wMVQwMDowMDowMCAA"}, "cursor"),  # a NUL for a job
        ("/v1/bill", {"since": "2026-02-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, "until"),
        ("/v1/audit", {"since": "2026-02-01T00:00:00Z", "until": "2026-02-01T00:00:00Z"}, "until"),
        ("/v1/audit", {"entity": ""}, "entity"),  # a filter without text is no wish for everything
        ("/v1/audit", {"type_prefix": ""}, "type_prefix"),
        ("/v1/jobs", {"queue": ""}, "queue"),
        ("/v1/jobs", {"name": ""}, "name"),
        ("/v1/nodes", {"cluster": ""}, "cluster"),
        ("/v1/moves", {"node": ""}, "node"),
        ("/v1/events", {"job": ""}, "job"),
        ("/v1/events", {"type": ""}, "type"),
        ("/v1/events", {"type": " "}, "type"),  # nor is one that nobody can see
        ("/v1/events", {"job": "\t"}, "job"),
        ("/v1/audit", {"type_prefix": " "}, "type_prefix"),
        ("/v1/audit", {"entity": "\u200b"}, "entity"),
        ("/v1/jobs", {"queue": " "}, "queue"),
        ("/v1/jobs", {"name": "\u00a0 "}, "name"),
        ("/v1/nodes", {"cluster": " "}, "cluster"),
        ("/v1/moves", {"node": " "}, "node"),
    ],
)
async def test_a_value_that_can_not_be_meant_is_the_askers_fault(
    asking: Asking, path: str, query: dict[str, str], field: str
) -> None:
    answer = await asking.admin.get(path, params=query)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert answer.json()["remedy"]


@pytest.mark.parametrize("path", ["/v1/audit", "/v1/jobs", "/v1/queues", "/v1/bill", "/v1/events"])
async def test_a_tenant_that_can_not_be_is_the_askers_fault(asking: Asking, path: str) -> None:
    for tenant in ("", " ", "No Tenant", "*", "ñ"):
        answer = await asking.admin.get(path, params={"tenant": tenant})
        assert (answer.status_code, answer.json()["field"]) == (422, "tenant"), tenant
        assert answer.json()["remedy"]


@pytest.mark.parametrize(
    "path", ["/v1/moves/No Id/cancel", "/v1/escalations/g/No Id/settle", "/v1/escalations/G/n/settle"]
)
async def test_what_has_no_id_is_not_there(asking: Asking, path: str) -> None:
    answer = await asking.admin.post(f"/v1/{path}", json={"reason": "to see"})
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:triplane:problem:not-found")


async def test_a_body_that_is_not_json_names_no_field(asking: Asking) -> None:
    answer = await asking.admin.post("/v1/tenants", content=b"{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["detail"], answer.json()["field"]) == (422, "JSON decode error", None)
