"""Documents over HTTP: each has its result, and what was taken is said on the bus in the same transaction."""

import asyncio
from typing import Any

import httpx

from schemas.base import Envelope
from schemas.ids import TenantId, cluster_id, derive, job_id
from schemas.lifecycle import JobState
from schemas.workload import RequestApplied, RequestSubmitted, RequestWithdrawn
from tests.support.builders import a_demand, a_job_id, some_work
from tests.support.builders_gateway import finished, queued, said
from tests.support.eventually import eventually
from tests.support.gateways import ADMIN, Asking, a_job, gateway
from tests.support.servers import Servers


def result(number: int, line: int, outcome: str, **more: Any) -> dict[str, Any]:
    head = {"kind": "Job", "tenant": "acme", "name": "train", "id": a_job_id(), "faults": []}
    return {"number": number, "line": line, "outcome": outcome, **head, **more}


async def until_state(asking: Asking, state: JobState, name: str = "train") -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        job: dict[str, Any] = (await asking.admin.get(f"/v1/jobs/{name}")).json()
        assert job["state"] == state, job
        return job

    return await eventually(look)


async def test_a_job_is_created_said_and_the_same_when_it_comes_again(asking: Asking) -> None:
    assert await asking.submit(a_job()) == [result(1, 1, "created")]
    assert await asking.submit(a_job()) == [result(1, 1, "unchanged")]
    (fact,) = await asking.line.wait(RequestSubmitted)
    assert fact == RequestSubmitted(
        job=job_id("acme", "train", 1),
        tenant=TenantId("acme"),
        name="train",
        queue="main",
        priority=0,
        demand=a_demand(),
        work=some_work(),
        retries=0,
        labels={},
        digest=fact.digest,
        submitted_by="administrator",
    )


async def test_declarations_come_with_their_jobs_in_whatever_order(asking: Asking) -> None:
    text = a_job("first", queue="new") + (
        "---\napiVersion: triplane/v1\nkind: Queue\nmetadata: {name: new, tenant: acme}\n"
        "spec: {quotas: [{class: b200, nominal: 4}]}\n"
        "---\napiVersion: triplane/v1\nkind: GpuClass\nmetadata: {name: b200}\nspec: {match: {model: B200}}\n"
    )
    results = await asking.submit(text)
    assert [(r["kind"], r["outcome"], r["id"]) for r in results] == [
        ("Job", "created", job_id("acme", "first", 1)),
        ("Queue", "created", derive("queue", "acme", "new")),
        ("GpuClass", "created", derive("gpuclass", "", "b200")),
    ]
    await asking.line.wait(RequestSubmitted)
    order = [type(envelope.data) for envelope in asking.line.heard][-3:]
    assert order == [RequestApplied, RequestApplied, RequestSubmitted]


async def test_good_documents_go_through_beside_bad_ones(asking: Asking) -> None:
    results = await asking.submit("\n---\n".join((a_job("good"), a_job("bad", queue="mian"), "kind: [", a_job("fine"))))
    assert [(r["number"], r["name"], r["outcome"]) for r in results] == [
        (1, "good", "created"),
        (2, "bad", "error"),
        (3, None, "error"),
        (4, "fine", "created"),
    ]
    assert results[1]["faults"] == [
        {
            "path": "spec.queue",
            "message": "tenant acme has no queue mian",
            "remedy": "did you mean main?",
            "line": None,
        }
    ]
    facts = await asking.line.wait(RequestSubmitted, 2)
    assert [fact.name for fact in facts] == ["good", "fine"]


async def test_other_content_under_a_living_name_is_refused_with_the_fields(asking: Asking) -> None:
    await asking.submit(a_job())
    (refused,) = await asking.submit(a_job(devices=2))
    assert (refused["outcome"], refused["faults"][0]["path"]) == ("error", "spec.devicesPerReplica")
    assert "is alive" in refused["faults"][0]["message"]


async def test_an_ended_job_is_made_anew_only_when_asked(asking: Asking) -> None:
    await asking.submit(a_job())
    job = a_job_id()
    await asking.line.say(said(queued(), key=job, version=1), said(finished(), key=job, version=2))
    await until_state(asking, JobState.SUCCEEDED)
    (refused,) = await asking.submit(a_job())
    assert (refused["outcome"], refused["faults"][0]["message"]) == ("error", f"job train has ended ({job})")
    (made,) = await asking.submit(a_job(), again=True)
    assert (made["outcome"], made["id"]) == ("created", job_id("acme", "train", 2))


async def test_a_dry_run_keeps_and_says_nothing(asking: Asking) -> None:
    (checked,) = await asking.submit(a_job(), dry_run=True)
    (made,) = await asking.submit(a_job("other"))
    assert (checked["outcome"], made["outcome"]) == ("created", "created")
    facts = await asking.line.wait(RequestSubmitted)
    assert [fact.name for fact in facts] == ["other"]
    assert (await asking.admin.get("/v1/jobs/train")).status_code == 404


async def test_the_same_name_at_the_same_moment_makes_one_job(asking: Asking) -> None:
    answers = await asyncio.gather(*(asking.submit(a_job()) for _ in range(8)))
    assert sorted(results[0]["outcome"] for results in answers) == ["created", *["unchanged"] * 7]
    await asking.submit(a_job("last"))
    await eventually(lambda: [fact.name for fact in asking.line.facts(RequestSubmitted)] == ["train", "last"])


async def test_twice_in_one_text_is_once(asking: Asking) -> None:
    results = await asking.submit(a_job() + "---\n" + a_job() + "---\n" + a_job(devices=2))
    assert [r["outcome"] for r in results] == ["created", "unchanged", "error"]


async def test_a_thousand_documents_are_one_turn(asking: Asking) -> None:
    results = await asking.submit("---\n".join(a_job(f"j{number}") for number in range(1_000)))
    assert {r["outcome"] for r in results} == {"created"}
    await asking.line.wait(RequestSubmitted, 1_000)


async def test_a_changed_declaration_has_its_next_generation(asking: Asking) -> None:
    text = (
        "apiVersion: triplane/v1\nkind: Queue\nmetadata: {name: main, tenant: acme}\n"
        "spec: {quotas: [{class: h100, nominal: 32}]}\n"
    )
    assert [r["outcome"] for r in await asking.submit(text)] == ["changed"]
    assert [r["outcome"] for r in await asking.submit(text)] == ["unchanged"]

    def queue() -> list[Envelope]:
        return [e for e in asking.line.heard if e.key == derive("queue", "acme", "main")]

    await eventually(lambda: len(queue()) == 2)
    assert [envelope.version for envelope in queue()] == [1, 2]


async def test_the_cluster_s_fact_has_the_id_that_nodes_are_made_from(asking: Asking) -> None:
    await asking.line.wait(RequestApplied, 4)
    facts = [e for e in asking.line.heard if isinstance(e.data, RequestApplied) and e.data.kind == "Cluster"]
    assert [(e.key, e.scope, e.version) for e in facts] == [(cluster_id("demo"), "fleet", 1)]


async def test_a_text_that_does_not_come_is_waited_for_no_longer_than_the_setting_says(servers: Servers) -> None:
    async with gateway(servers, body_seconds=0.2) as asking:
        address = httpx.URL(asking.address)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        head = f"POST /v1/documents HTTP/1.1\r\nHost: {address.host}\r\nAuthorization: Bearer {ADMIN}\r\n"
        writer.write(f"{head}Content-Length: 100\r\n\r\napiVersion".encode())
        status = await asyncio.wait_for(reader.readline(), 30)
        writer.close()
    assert status == b"HTTP/1.1 408 Request Timeout\r\n"


async def test_a_text_beyond_the_bounds_is_refused_as_a_problem(asking: Asking) -> None:
    answer = await asking.admin.post("/v1/documents", content=b"a" * (10 << 20))
    assert (answer.status_code, answer.json()) == (
        413,
        {
            "type": "urn:triplane:problem:too-large",
            "title": "Too large",
            "status": 413,
            "detail": "the text is over the limit of 1048576 bytes",
            "field": None,
            "remedy": "send it in parts",
        },
    )
    many = await asking.admin.post("/v1/documents", content="---\na\n" * 1_001)
    assert (many.status_code, many.json()["detail"]) == (400, "1001 documents are over the limit of 1000")
    for empty in ("", "---\n# nothing\n---\n"):
        answer = await asking.admin.post("/v1/documents", content=empty)
        assert (answer.status_code, answer.json()["detail"]) == (400, "there is no document in the text")


async def test_a_withdrawal_is_said_once(asking: Asking) -> None:
    await asking.submit(a_job())
    first = await asking.admin.delete("/v1/jobs/train", params={"message": "no need"})
    again = await asking.admin.delete(f"/v1/jobs/{a_job_id()}")
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json()["withdrawn_at"] == again.json()["withdrawn_at"] is not None
    facts = await asking.line.wait(RequestWithdrawn)
    assert facts == [
        RequestWithdrawn(job=a_job_id(), tenant=TenantId("acme"), withdrawn_by="administrator", message="no need")
    ]


async def test_what_has_ended_can_not_be_cancelled(asking: Asking) -> None:
    await asking.submit(a_job())
    await asking.line.say(said(finished(), key=a_job_id(), version=2))
    await until_state(asking, JobState.SUCCEEDED)
    answer = await asking.admin.delete("/v1/jobs/train")
    assert (answer.status_code, answer.json()["detail"]) == (409, "job train has ended: Succeeded")
