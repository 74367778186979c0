"""Jobs, their reasons and output, as they are after facts came over the bus."""

import asyncio
import random
from typing import Any

import pytest

from libs.bus.steady import connected
from schemas.base import Envelope
from schemas.calls import AuditPage, AuditQuery, Logs, LogsAnswer
from schemas.ids import run_name
from schemas.lifecycle import JobState
from schemas.reasons import Code
from tests.support.builders import (
    ACME,
    a_grant,
    a_job_id,
    a_node_id,
    a_part,
    at,
    refused,
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
        assert (told["numbers"], len(told["history"])) == (numbers, 3), told  # the two streams are heard in any order
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


async def test_output_is_asked_from_the_node_of_the_rank(asking: Asking, servers: Servers) -> None:
    await asking.submit(a_job(devices=4))
    nothing = (await asking.admin.get("/v1/jobs/train/logs")).json()
    assert nothing == {"attempt": 1, "rank": 0, "known": False, "text": "", "next_offset": 0, "ended": False}
    await asking.line.say(said(GRANT, key=GRANT.grant, version=1))
    agent = await connected(**servers.operator_nats)
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
    assert asked[0] == Logs(run=run_name(JOB, 1), rank=0, offset=0, limit=10)
    await asking.line.say(said(a_grant("train", a_part("n2"), attempt=2, epoch=2), key="grant_2", version=1))

    async def is_elsewhere() -> bool:
        newest = await asking.admin.get("/v1/jobs/train/logs")
        return newest.status_code == 503  # nobody answers for n2

    assert await eventually(is_elsewhere)
    earlier = (await asking.admin.get("/v1/jobs/train/logs", params={"attempt": 1})).json()
    assert (earlier["attempt"], earlier["text"]) == (1, "hello\n")
    never = await asking.admin.get("/v1/jobs/train/logs", params={"attempt": 3})
    assert (never.status_code, never.json()["remedy"]) == (404, "there is output of: 2, 1")
    beyond = await asking.admin.get("/v1/jobs/train/logs", params={"rank": 5, "attempt": 1})
    assert (beyond.status_code, beyond.json()["remedy"]) == (404, "ranks are 0 to 0")
    await agent.close()


async def test_the_audit_is_asked_for_the_tenant_alone(asking: Asking, servers: Servers) -> None:
    audit = await connected(**servers.operator_nats)
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


async def test_a_service_that_says_no_answer_is_a_problem_with_a_remedy(asking: Asking, servers: Servers) -> None:
    audit = await connected(**servers.operator_nats)

    async def answer(message: Any) -> None:
        await message.respond(b'{"entries": 7}')

    await audit.subscribe("call.audit.query", cb=answer)
    await audit.flush()
    said = await asking.admin.get("/v1/audit")
    assert (said.status_code, said.json()["detail"]) == (503, "what call.audit.query says is no AuditPage")
    await audit.close()


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


async def test_whatever_words_a_fact_brings_are_shown_and_stop_nothing(asking: Asking) -> None:
    await asking.submit(a_job())
    words = 'NUL \x00, ünïcode 日本, quote " and tab \t'
    strange = held(code=Code.UNKNOWN)
    strange = strange.model_copy(update={"reason": why(Code.UNKNOWN, words)})
    await asking.line.say(said(strange, key=JOB, version=1))

    async def look() -> bool:
        told = (await asking.admin.get("/v1/jobs/train/explain")).json()
        assert (told["code"], told["message"]) == ("Unknown", words), told
        return True

    assert await eventually(look)
