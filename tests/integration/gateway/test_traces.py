"""A job's trace on a real gateway: what was said of it, and whose trace it belongs to."""

from dataclasses import replace
from typing import Any

from schemas.base import Envelope, fact_type
from schemas.ids import JobId
from schemas.trace import parse, root_of, trace_of
from schemas.workload import RequestSubmitted
from tests.support.builders import a_grant, an_envelope, released, revoked
from tests.support.builders_gateway import admitted, finished, queued, reserved, started
from tests.support.eventually import eventually
from tests.support.gateways import Asking, a_job

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def submitted(asking: Asking, **headers: str) -> Envelope:
    """Submit a job and return the fact of it."""
    answer = await asking.admin.post("/v1/documents", content=a_job(), headers=headers)
    assert answer.json()["results"][0]["outcome"] == "created", answer.text
    await asking.line.wait(RequestSubmitted)
    return next(each for each in asking.line.heard if isinstance(each.data, RequestSubmitted))


async def trace(asking: Asking, steps: int) -> dict[str, Any]:
    """Return the trace of the job as soon as it has so many steps."""

    async def look() -> dict[str, Any]:
        answer = await asking.admin.get("/v1/jobs/train/trace")
        found: dict[str, Any] = answer.json()
        assert len(found["steps"]) == steps, found
        return found

    return await eventually(look)


async def test_a_submission_begins_the_trace_of_its_job_whoever_asks(asking: Asking) -> None:
    fact = await submitted(asking, traceparent=CALLER)
    context = parse(fact.traceparent)
    assert context is not None
    job = JobId(fact.key)
    assert (context.trace, context.span, context.sampled) == (trace_of(job), root_of(job), True)


async def test_the_trace_of_a_job_tells_what_answered_what_and_where_the_time_went(asking: Asking) -> None:
    wish = await submitted(asking)
    grant = a_grant()
    words = [queued(), reserved(), admitted(), grant, started(), finished(), revoked(grant), released(grant)]
    facts = [an_envelope(fact, key=getattr(fact, "grant", wish.key), version=n) for n, fact in enumerate(words, 1)]
    later = [replace(fact, time=wish.time, cause=wish.id) for fact in facts]
    await asking.line.say(*later)
    found = await trace(asking, 9)
    assert (found["id"], found["trace"], found["cut"]) == (wish.key, trace_of(JobId(wish.key)), False)
    first, second = found["steps"][:2]
    assert (first["service"], first["type"], first["after"]) == ("gateway", fact_type(RequestSubmitted), None)
    assert {step["after"] for step in found["steps"][1:]} == {fact_type(RequestSubmitted)}
    assert (second["service"], second["attempt"], second["seconds"]) == ("admission", 1, 0.0)
    over = {phase["name"]: phase["over"] for phase in found["phases"]}
    assert over == {
        "intake": True,
        "quota": True,
        "devices": True,
        "launch": True,
        "run": True,
        "release": True,
        "bill": False,
    }


async def test_a_trace_is_shown_to_its_tenant_alone(asking: Asking) -> None:
    await submitted(asking)
    async with asking.by(await asking.token("viewer", "acme")) as ours:
        assert (await ours.get("/v1/jobs/train/trace")).status_code == 200
    async with asking.by(await asking.token("viewer", "zoo", "bob")) as theirs:
        assert (await theirs.get("/v1/jobs/train/trace")).status_code == 404
