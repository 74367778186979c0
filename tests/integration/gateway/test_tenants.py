"""Who may do what: tokens, roles, and that one tenant never sees another's things."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.base import Envelope
from schemas.workload import RequestOrdered
from tests.support.builders import a_grant, a_job_id, a_part
from tests.support.builders_gateway import a_node, discovered, queued, rated, said
from tests.support.eventually import eventually
from tests.support.gateways import FLEET, Asking, a_job

ZOO = a_job_id(tenant="zoo")


@dataclass(frozen=True)
class Neighbours:
    """A job of tenant zoo with a history, output, events and a bill, and a viewer and admin of tenant acme."""

    asking: Asking
    viewer: httpx.AsyncClient
    submitter: httpx.AsyncClient
    admin: httpx.AsyncClient


def zoo_facts() -> list[Envelope]:
    grant = a_grant("train", a_part("n1", 4), tenant="zoo", queue="mine")
    usage = rated("zoo").model_copy(update={"tenant": "zoo", "job": ZOO, "queue": "mine"})
    return [
        discovered(a_node("n1")),
        said(queued(tenant="zoo", queue="mine"), key=ZOO, version=1, scope="zoo"),
        said(grant, key=grant.grant, version=1, scope="zoo"),
        said(usage, key="usage_1", version=1, scope="zoo"),
    ]


@pytest.fixture
async def neighbours(asking: Asking) -> AsyncIterator[Neighbours]:
    await asking.submit(a_job(queue="mine", tenant="zoo", devices=4))
    await asking.line.say(*zoo_facts())

    async def rated_already() -> bool:
        return bool((await asking.admin.get("/v1/bill")).json())

    await eventually(rated_already)
    tokens = [await asking.token(role, "acme", role) for role in ("viewer", "submitter", "admin")]
    async with asking.by(tokens[0]) as viewer, asking.by(tokens[1]) as submitter, asking.by(tokens[2]) as admin:
        yield Neighbours(asking, viewer, submitter, admin)


async def answer_of(client: httpx.AsyncClient, method: str, path: str, **more: Any) -> tuple[int, Any]:
    answer = await client.request(method, path, **more)
    body = answer.json()
    return answer.status_code, body.get("title") if isinstance(body, dict) and "title" in body else body


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/jobs", (200, {"items": [], "next": None})),
        ("GET", "/v1/jobs?tenant=zoo", (403, "Denied")),
        ("GET", "/v1/jobs/train", (404, "Not found")),
        ("GET", f"/v1/jobs/{ZOO}", (404, "Not found")),
        ("GET", f"/v1/jobs/{ZOO}?tenant=zoo", (403, "Denied")),
        ("GET", f"/v1/jobs/{ZOO}/explain", (404, "Not found")),
        ("GET", f"/v1/jobs/{ZOO}/logs", (404, "Not found")),
        ("GET", "/v1/bill", (200, [])),
        ("GET", "/v1/bill?tenant=zoo", (403, "Denied")),
        ("GET", "/v1/bill?tenant=platform-loss", (403, "Denied")),
        ("GET", "/v1/audit?tenant=zoo", (403, "Denied")),
        ("GET", "/v1/events?tenant=zoo", (403, "Denied")),
        ("GET", f"/v1/events?job={ZOO}", (404, "Not found")),
        ("GET", "/v1/tokens", (403, "Denied")),
        ("DELETE", f"/v1/jobs/{ZOO}", (403, "Denied")),
    ],
)
async def test_a_viewer_sees_nothing_of_another_tenant(
    neighbours: Neighbours, method: str, path: str, expected: tuple[int, Any]
) -> None:
    assert await answer_of(neighbours.viewer, method, path) == expected


async def test_a_viewer_sees_its_own_queues_and_tenant_alone(neighbours: Neighbours) -> None:
    queues = (await neighbours.viewer.get("/v1/queues")).json()
    tenants = (await neighbours.viewer.get("/v1/tenants")).json()
    assert ([row["queue"] for row in queues], [row["name"] for row in tenants]) == (["main"], ["acme"])


async def test_events_of_another_tenant_and_of_the_fleet_do_not_reach_a_viewer(neighbours: Neighbours) -> None:
    asking, job = neighbours.asking, a_job_id("own")
    await asking.submit(a_job("own"))
    async with neighbours.viewer.stream("GET", "/v1/events", params={"after": 0}) as stream:
        await asking.line.say(
            said(queued(tenant="zoo", queue="mine"), key=ZOO, version=2, scope="zoo"),
            said(queued("own"), key=job, version=1),
        )
        async for text in stream.aiter_lines():
            if text.startswith("data:"):
                break
    assert job in text
    assert ZOO not in text


async def test_a_submitter_submits_and_cancels_in_its_tenant_alone(neighbours: Neighbours) -> None:
    text = a_job("own", tenant="zoo", queue="mine") + "---\n" + a_job("own").replace(", tenant: acme", "")
    answer = await neighbours.submitter.post("/v1/documents", content=text)
    assert [(r["outcome"], r["tenant"], r["faults"]) for r in answer.json()["results"]] == [
        (
            "error",
            "zoo",
            [
                {
                    "path": "metadata.tenant",
                    "message": "token submitter is of tenant acme, not zoo",
                    "remedy": "write acme, or nothing",
                    "line": None,
                }
            ],
        ),
        ("created", "acme", []),
    ]
    assert (await neighbours.submitter.delete("/v1/jobs/own")).status_code == 200
    assert await answer_of(neighbours.submitter, "DELETE", f"/v1/jobs/{ZOO}") == (404, "Not found")


async def test_a_viewer_submits_nothing_and_a_tenant_s_admin_declares_nothing(neighbours: Neighbours) -> None:
    refused = await neighbours.viewer.post("/v1/documents", content=a_job())
    assert (refused.status_code, refused.json()["detail"]) == (
        403,
        "token viewer is a viewer; this needs submitter or more",
    )
    declared = (await neighbours.admin.post("/v1/documents", content=FLEET)).json()["results"]
    assert [(r["outcome"], r["faults"][0]["message"]) for r in declared] == [
        ("error", f"a {kind} is declared by fleet-wide admins; token admin is not one")
        for kind in ("Cluster", "GpuClass", "Queue", "Queue")
    ]


async def test_nodes_are_ordered_by_fleet_wide_operators_alone(neighbours: Neighbours) -> None:
    order = {"order": "cordon", "reason": "fan"}
    for client in (neighbours.viewer, neighbours.submitter, neighbours.admin):
        assert await answer_of(client, "POST", "/v1/nodes/n1/orders", json=order) == (403, "Denied")
    async with neighbours.asking.by(await neighbours.asking.token("operator", "*")) as operator:
        assert (await operator.post("/v1/nodes/n1/orders", json=order)).status_code == 202
    (fact,) = await neighbours.asking.line.wait(RequestOrdered)
    assert (fact.order, fact.owner) == ("cordon", "ada")


async def test_a_tenant_s_admin_gives_tokens_of_its_tenant_alone(neighbours: Neighbours) -> None:
    own = {"name": "eve", "role": "viewer", "tenant": "acme"}
    assert (await neighbours.admin.post("/v1/tokens", json=own)).status_code == 201
    for tenant in ("zoo", "*"):
        wanted = {**own, "tenant": tenant}
        assert await answer_of(neighbours.admin, "POST", "/v1/tokens", json=wanted) == (403, "Denied")
    assert await answer_of(neighbours.admin, "POST", "/v1/tenants", json={"name": "new"}) == (403, "Denied")
    listed = (await neighbours.admin.get("/v1/tokens")).json()
    assert {row["tenant"] for row in listed} == {"acme"}
    assert "secret" not in str(listed)


async def test_a_revoked_token_opens_nothing_from_then_on(asking: Asking) -> None:
    async with asking.by(await asking.token("viewer", "acme")) as viewer:
        me = (await viewer.get("/v1/me")).json()
        assert (me["name"], me["role"], me["tenant"]) == ("ada", "viewer", "acme")
        (token,) = [row for row in (await asking.admin.get("/v1/tokens")).json() if row["name"] == "ada"]
        assert (await asking.admin.delete(f"/v1/tokens/{token['id']}")).json()["revoked_at"] is not None
        answer = await viewer.get("/v1/me")
    assert (answer.status_code, answer.json()["detail"], answer.headers["WWW-Authenticate"]) == (
        401,
        "token ada is revoked or expired",
        "Bearer",
    )


async def test_without_a_good_token_nothing_opens(asking: Asking) -> None:
    for path in ("/v1/jobs", "/v1/fleet", "/v1/events", "/v1/me"):
        for client in (asking.by("wrong"), httpx.AsyncClient(base_url=asking.address)):
            async with client:
                answer = await client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")


async def test_no_process_that_is_started_beside_the_gateway_can_answer_in_its_place(asking: Asking) -> None:
    assert (await asking.admin.get("/v1/jobs")).status_code == 200
    open_here = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    sockets = [int(entry.name) for entry in open_here if str(entry.readlink()).startswith("socket:")]
    assert sockets
    assert [fd for fd in sockets if os.get_inheritable(fd)] == []


async def test_a_tenant_is_created_once(asking: Asking) -> None:
    answer = await asking.admin.post("/v1/tenants", json={"name": "acme"})
    assert (answer.status_code, answer.json()["detail"]) == (409, "there is a tenant acme already")
    bad = await asking.admin.post("/v1/tenants", json={"name": "Not A Name"})
    assert (bad.status_code, bad.json()["field"]) == (422, "name")


async def test_control_characters_reach_no_table(asking: Asking) -> None:
    for path in ("/v1/jobs/a%00b", "/v1/jobs?queue=%00", "/v1/fleet?x=%00", "/v1/events?type=%00"):
        answer = await asking.admin.get(path)
        assert (answer.status_code, answer.json()["title"]) == (422, "Bad input")
    order = await asking.admin.post("/v1/nodes/n1/orders", json={"order": "drain", "reason": "a\x00b"})
    assert (order.status_code, order.json()["field"]) == (422, "reason")
