"""What the gateway shows after facts came over the bus."""

import asyncio
import random
from typing import Any

import nats
import pytest

from schemas.base import Envelope
from schemas.calls import AuditPage, AuditQuery, Logs, LogsAnswer
from schemas.fleet import IncidentOpened, MarkEffect, NodeWentStale, Severity
from schemas.ids import IncidentId, UsageId, run_name
from schemas.ledger import UsageLine, UsageRated
from schemas.lifecycle import JobState
from schemas.reasons import Code, Layer
from schemas.workload import RequestOrdered
from tests.support.builders import (
    ACME,
    DEMO,
    NOON,
    a_grant,
    a_job_id,
    a_node_id,
    a_part,
    at,
    refused,
    released,
    revoked,
)
from tests.support.builders_gateway import (
    a_mark,
    a_node,
    admitted,
    changed,
    discovered,
    evicted,
    held,
    queued,
    requeued,
    reserved,
    said,
    started,
    why,
)
from tests.support.eventually import eventually
from tests.support.gateways import Asking, a_job, gateway
from tests.support.servers import Servers

JOB = a_job_id()
GRANT = a_grant("train", a_part("n1", 4))


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
    main = {"tenant": "acme", "queue": "main", "order": "BestEffortFIFO", "gpu_class": "h100", "nominal": 16}
    warning = "quota 16 is more than the 8 h100 that exist"
    taken = {**main, "used": 4, "waiting": 1, "admitted": 1, "warning": warning}
    await shows(asking, "/v1/queues", [taken], tenant="acme")
    await asking.line.say(
        said(revoked(GRANT, Code.DRAINED), key=GRANT.grant, version=2), said(evicted(), key=JOB, version=4)
    )
    await shows(asking, "/v1/queues", [{**taken, "waiting": 2, "admitted": 0}], tenant="acme")
    await asking.line.say(said(released(GRANT), key=GRANT.grant, version=3))
    await shows(asking, "/v1/queues", [{**taken, "used": 0, "waiting": 2, "admitted": 0}], tenant="acme")


LIFE: tuple[Envelope, ...] = (
    said(queued(), key=JOB, version=1),
    said(reserved(devices=4), key=JOB, version=2),
    said(admitted(), key=JOB, version=3),
    said(GRANT, key=GRANT.grant, version=1),
    said(revoked(GRANT, Code.DRAINED), key=GRANT.grant, version=2),
    said(evicted(), key=JOB, version=4),
    said(requeued(), key=JOB, version=5),
    said(reserved(devices=4, attempt=2), key=JOB, version=6),
    said(admitted(attempt=2), key=JOB, version=7),
    said(a_grant("train", a_part("n2", 4), attempt=2, epoch=2), key="grant_2", version=1),
    said(started(attempt=2, when=at(5)), key=run_name(JOB, 2), version=2),
)


async def test_a_job_is_shown_the_same_whatever_the_order_and_the_batches_of_its_facts(asking: Asking) -> None:
    await asking.submit(a_job(devices=4))
    facts = [*LIFE, *LIFE[::2]]
    random.Random(7).shuffle(facts)
    for index, fact in enumerate(facts):
        await asking.line.say(fact, again=f".{index}")

    async def look() -> dict[str, Any]:
        job: dict[str, Any] = (await asking.admin.get("/v1/jobs/train")).json()
        assert (job["state"], job["attempt"]) == ("Running", 2), job
        history = (await asking.admin.get("/v1/jobs/train/explain")).json()["history"]
        assert len(history) == len(LIFE)
        return job

    job = await eventually(look)
    assert {name: job[name] for name in ("gpu_class", "nodes", "devices", "started_at", "ended", "reason")} == {
        "gpu_class": "h100",
        "nodes": ["n2"],
        "devices": 4,
        "started_at": "2026-01-15T12:00:05Z",
        "ended": False,
        "reason": None,
    }


async def test_a_waiting_job_is_explained_by_the_numbers_of_now_and_its_past(asking: Asking) -> None:
    await asking.submit(a_job(devices=8, more=", replicas: 3"))
    await asking.line.say(
        *(discovered(a_node(name)) for name in ("n1", "n2")),
        discovered(a_node("n3", marks=(a_mark(),))),
        said(queued(), key=JOB, version=1),
        said(admitted(), key=JOB, version=2),
        said(refused(code=Code.WAITING_FOR_CAPACITY, final=False), key=run_name(JOB, 1), version=1, when=at(9)),
    )
    numbers = {"asked": 24, "free": 16, "held": 8, "unknown": 0, "total": 24, "replicas": 2}

    async def look() -> dict[str, Any]:
        told: dict[str, Any] = (await asking.admin.get("/v1/jobs/train/explain")).json()
        assert told["numbers"] == numbers, told
        return told

    told = await eventually(look)
    words = "needs 24 h100, free 16, 8 more held on n3 (health: Xid 79, since 2026-01-15 12:00)"
    assert (told["code"], told["message"], told["since"]) == ("WaitingForCapacity", words, "2026-01-15T12:00:09Z")
    assert [entry["type"] for entry in told["history"]] == [
        "workload.job.queued.v1",
        "workload.job.admitted.v1",
        "workload.grant.refused.v1",
    ]
    await asking.line.say(changed(a_node("n3"), 2))

    async def recounted() -> bool:
        answer = (await asking.admin.get("/v1/jobs/train/explain")).json()
        assert answer["message"] == "needs 24 h100, free 24", answer
        return True

    await eventually(recounted)


async def test_jobs_are_listed_newest_first_in_pages_and_filtered(asking: Asking) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await asking.submit(a_job(name))
    await asking.line.say(said(held("c", Code.EXCEEDS_QUOTA), key=a_job_id("c"), version=2))

    pages, cursor = [], None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await asking.admin.get("/v1/jobs", params=query)).json()
        pages.append([job["name"] for job in page["items"]])
        if (cursor := page["next"]) is None:
            break
    assert pages == [["e", "d"], ["c", "b"], ["a"]]

    async def reason() -> bool:
        (job,) = (await asking.admin.get("/v1/jobs", params={"name": "c", "state": "Queued"})).json()["items"]
        return bool(job["reason"] == "ExceedsQuota")

    await eventually(reason)
    none = (await asking.admin.get("/v1/jobs", params={"queue": "other"})).json()
    assert none == {"items": [], "next": None}
    broken = await asking.admin.get("/v1/jobs", params={"cursor": "?"})
    assert (broken.status_code, broken.json()["field"]) == (422, "cursor")


async def test_the_newest_job_of_a_name_is_meant_and_tenants_are_told_apart(asking: Asking) -> None:
    await asking.submit(a_job() + "---\n" + a_job(queue="mine", tenant="zoo"))
    unclear = await asking.admin.get("/v1/jobs/train")
    assert (unclear.status_code, unclear.json()["detail"]) == (409, "several tenants have a job train: acme, zoo")
    clear = await asking.admin.get("/v1/jobs/train", params={"tenant": "zoo"})
    assert clear.json()["id"] == a_job_id(tenant="zoo")


def rated(account: str, *, amount: int = 2_500_000, usage: str = "usage_1") -> UsageRated:
    return UsageRated(
        usage=UsageId(usage),
        grant=GRANT.grant,
        job=JOB,
        attempt=1,
        tenant=ACME,
        account=account,
        queue="main",
        gpu_class="h100",
        node=a_node_id(),
        currency="USD",
        lines=tuple(
            UsageLine(
                device=device.device,
                started_at=NOON,
                ended_at=at(3_600),
                price_micros_per_hour=2_500_000,
                amount_micros=amount,
            )
            for device in GRANT.parts[0].devices
        ),
    )


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


async def test_output_is_asked_from_the_node_of_the_rank(asking: Asking, servers: Servers) -> None:
    await asking.submit(a_job(devices=4))
    nothing = (await asking.admin.get("/v1/jobs/train/logs")).json()
    assert nothing == {"attempt": 1, "rank": 0, "known": False, "text": "", "next_offset": 0, "ended": False}
    await asking.line.say(said(GRANT, key=GRANT.grant, version=1))
    agent = await nats.connect(**servers.operator_nats)
    asked: list[Logs] = []

    async def answer(message: Any) -> None:
        asked.append(Logs.model_validate_json(message.data))
        await message.respond(
            LogsAnswer(known=True, text="hello\n", next_offset=6, ended=True).model_dump_json().encode()
        )

    await agent.subscribe(f"call.node.{a_node_id('n1')}.logs", cb=answer)
    await agent.flush()

    async def look() -> dict[str, Any]:
        piece: dict[str, Any] = (await asking.admin.get("/v1/jobs/train/logs", params={"limit": 10})).json()
        assert piece["known"], piece
        return piece

    piece = await eventually(look)
    assert piece == {"attempt": 1, "rank": 0, "known": True, "text": "hello\n", "next_offset": 6, "ended": True}
    assert asked == [Logs(run=run_name(JOB, 1), rank=0, offset=0, limit=10)]
    beyond = await asking.admin.get("/v1/jobs/train/logs", params={"rank": 5})
    assert (beyond.status_code, beyond.json()["remedy"]) == (404, "ranks are 0 to 0")
    await agent.close()


async def test_the_audit_is_asked_for_the_tenant_alone(asking: Asking, servers: Servers) -> None:
    audit = await nats.connect(**servers.operator_nats)
    asked: list[AuditQuery] = []

    async def answer(message: Any) -> None:
        asked.append(AuditQuery.model_validate_json(message.data))
        await message.respond(AuditPage(entries=(), intact=True).model_dump_json().encode())

    await audit.subscribe("call.audit.query", cb=answer)
    await audit.flush()
    async with asking.by(await asking.token("viewer", "acme")) as viewer:
        page = await viewer.get("/v1/audit", params={"entity": "job_1", "verify": "true"})
    assert page.json() == {"entries": [], "intact": True, "broken_at": None}
    assert asked == [AuditQuery(entity="job_1", tenant=ACME, verify=True)]
    await audit.close()


async def test_an_agent_or_audit_that_is_away_is_a_problem_with_a_remedy(servers: Servers) -> None:
    async with gateway(servers, call_seconds=0.3) as asking:
        answer = await asking.admin.get("/v1/audit")
    assert (answer.status_code, answer.json()["title"], answer.json()["remedy"]) == (
        503,
        "Unavailable",
        "try again in a few seconds",
    )


async def test_facts_that_came_while_the_gateway_was_away_are_taken_when_it_is_back(servers: Servers) -> None:
    async with gateway(servers) as asking:
        await asking.furnish()
        await asking.submit(a_job())
        await asking.line.say(said(queued(), key=JOB, version=1))
    async with gateway(servers) as asking:
        await asking.line.say(said(admitted(), key=JOB, version=2))

        async def look() -> bool:
            return bool((await asking.admin.get("/v1/jobs/train")).json()["state"] == JobState.ADMITTED)

        assert await eventually(look)


@pytest.mark.parametrize("unheard", ["train"])
async def test_a_job_nobody_has_heard_of_is_said_again(servers: Servers, unheard: str) -> None:
    async with gateway(servers, sweep_seconds=0.5) as asking:
        await asking.furnish()
        await asking.submit(a_job(unheard) + "---\n" + a_job("heard"))
        await asking.line.say(said(queued("heard"), key=a_job_id("heard"), version=1))

        def said_of(name: str) -> int:
            return len([e for e in asking.line.heard if e.type.endswith("submitted.v1") and e.key == a_job_id(name)])

        await eventually(lambda: said_of(unheard) >= 3)
        assert said_of("heard") < 3


async def test_many_gateways_may_fold_the_same_facts(servers: Servers) -> None:
    async with gateway(servers) as one, gateway(servers) as other:
        await one.furnish()
        await one.submit("---\n".join(a_job(f"j{number}") for number in range(50)))
        facts = [
            said(fact, key=a_job_id(f"j{number}"), version=version)
            for number in range(50)
            for version, fact in enumerate((queued(f"j{number}"), admitted(f"j{number}")), 1)
        ]
        await asyncio.gather(one.line.say(*facts[::2]), other.line.say(*facts[1::2]))

        async def look() -> bool:
            page = await other.admin.get("/v1/jobs", params={"state": "Admitted", "limit": 100})
            return len(page.json()["items"]) == 50

        assert await eventually(look)
