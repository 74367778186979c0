"""All records are compared all the time: what lasts is said, counted, and healed where the truth is clear."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest
from nats.aio.msg import Msg
from redis.asyncio import Redis

from libs.config import Infrastructure
from libs.service import Service
from schemas.base import Envelope
from schemas.calls import (
    ChargesPage,
    EscalationsPage,
    EscalationsQuery,
    OpenCharge,
    OpenRun,
    PageQuery,
    RunsPage,
    Subject,
)
from schemas.ids import GrantId, node_id, run_name
from schemas.lifecycle import RunState
from schemas.reasons import Code
from schemas.runtime import Holder, ObservationReported
from schemas.workload import (
    DriftCleared,
    DriftFound,
    DriftKind,
    GrantIssued,
    GrantReleased,
    RequestApplied,
    RequestSubmitted,
)
from services.admission.app import build as build_admission
from services.admission.settings import Settings as AdmissionSettings
from services.dispatch.app import build as build_dispatch
from services.dispatch.settings import Settings as DispatchSettings
from tests.support.builders import a_queue, a_submission, an_envelope
from tests.support.eventually import eventually
from tests.support.placements import (
    CLUSTER,
    Agents,
    a_job,
    a_report,
    admitted,
    ask,
    claim,
    ledger,
    placement,
    run_ended,
    say_fleet,
)
from tests.support.servers import Servers
from tests.support.wire import Wire

N1 = node_id(CLUSTER, "n1")
P = TypeVar("P", ChargesPage, RunsPage)


def quick(
    surroundings: Infrastructure, *, renews: float = 0.2, waits: float = 5
) -> AbstractAsyncContextManager[list[Service]]:
    """Run placement, which compares five times a second and calls a drift what lasts a second."""
    return placement(
        surroundings,
        reconcile_seconds=0.2,
        drift_after_seconds=1,
        renew_seconds=renews,
        reconcile_call_seconds=waits,
    )


@dataclass
class Others:
    """Admission and dispatch, as far as they are asked what is open."""

    charges: Sequence[OpenCharge] = ()
    runs: Sequence[OpenRun] = ()
    asked: list[str] = field(default_factory=list)

    async def answer(self, message: Msg) -> None:
        self.asked.append(message.subject)
        charges = message.subject == "call.job.charges"
        page = ChargesPage(items=tuple(self.charges)) if charges else RunsPage(items=tuple(self.runs))
        await message.respond(page.model_dump_json().encode())

    def agree(self, *issued: GrantIssued) -> None:
        """Have a charge and a run for each of these grants."""
        self.charges = [OpenCharge(job=each.job, attempt=each.attempt, devices=1) for each in issued]
        self.runs = [
            OpenRun(grant=each.grant, run=run_name(each.job, each.attempt), state=RunState.STARTED) for each in issued
        ]


@asynccontextmanager
async def others(line: Wire) -> AsyncIterator[Others]:
    standing = Others()
    subscriptions = [
        await line.connection.subscribe(subject, cb=standing.answer)
        for subject in ("call.job.charges", "call.run.open")
    ]
    await line.connection.flush()
    try:
        yield standing
    finally:
        for subscription in subscriptions:
            await subscription.unsubscribe()


def a_report_of(*holders: GrantIssued, sequence: int = 1, unknown: str | None = None) -> Envelope:
    """Say a heartbeat of n1 that names the runs of these grants, and one that nobody knows."""
    report = a_report("n1", sequence=sequence)
    assert isinstance(report.data, ObservationReported)
    held = [
        Holder(
            grant=each.grant,
            epoch=each.epoch,
            run=run_name(each.job, each.attempt),
            instance="instance-1",
            devices=tuple(device.device for device in each.parts[0].devices),
        )
        for each in holders
    ]
    if unknown is not None:
        held.append(
            Holder(
                grant=GrantId(unknown), epoch=1, run=run_name(a_job("stranger"), 1), instance="instance-x", devices=()
            )
        )
    return replace(report, data=report.data.model_copy(update={"holders": tuple(held)}))


async def running(line: Wire, name: str = "train") -> GrantIssued:
    await line.say(admitted(name))
    issued = next(fact for fact in await line.wait(GrantIssued) if fact.name == name)
    assert (await claim(line, issued)).granted
    return issued


def kinds(line: Wire) -> set[DriftKind]:
    return {fact.kind for fact in line.facts(DriftFound)}


async def drift(line: Wire, kind: DriftKind) -> DriftFound:
    """Wait for a drift of this kind; where the others agree late, theirs comes and goes before it."""
    found = await eventually(lambda: [fact for fact in line.facts(DriftFound) if fact.kind is kind])
    return found[0]


async def test_a_charge_for_nothing_is_said_listed_and_cleared_when_it_is_gone(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with others(line) as standing, quick(surroundings), ledger(surroundings) as rows:
        standing.charges = [OpenCharge(job=a_job("ghost"), attempt=2, devices=8)]
        (found,) = await line.wait(DriftFound)
        (listed,) = (await ask(line, "call.grant.escalations", EscalationsQuery(), EscalationsPage)).items
        standing.charges = ()
        (cleared,) = await line.wait(DriftCleared)
        standing.charges = [OpenCharge(job=a_job("ghost"), attempt=2, devices=8)]
        await eventually(lambda: len(line.facts(DriftFound)) == 2)
        version = await rows.fetchval("SELECT version FROM drifts")
    assert (found.kind, found.subject, found.heals) == (DriftKind.CHARGE_WITHOUT_GRANT, f"{a_job('ghost')}-a2", True)
    assert (listed.subject, listed.reason.code) == (Subject.DRIFT, Code.RECORDS_DIFFER)
    assert (cleared.drift, version) == (found.drift, 3)


async def test_while_nobody_answers_nothing_is_found_and_nothing_is_cleared(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with quick(surroundings, waits=0.2), ledger(surroundings) as rows:
        await running(line)
        await rows.execute(
            "INSERT INTO drifts (drift, kind, subject, since, found_at, version)"
            " VALUES ('drift_1', 'GrantWithoutRun', 'grant_1', now(), now(), 1)"
        )

        async def lasting() -> bool:
            return bool(
                await rows.fetchval("SELECT now() - since > interval '2 s' FROM drifts WHERE drift = 'drift_1'")
            )

        await eventually(lasting)
    assert (line.facts(DriftFound), line.facts(DriftCleared)) == ([], [])


async def test_g7_a_run_of_an_ended_grant_is_stopped_by_name_and_one_of_an_unknown_grant_never(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1")
    async with others(line) as records, quick(surroundings):
        issued = await running(line)
        records.agree(issued)
        await line.say(run_ended(issued))
        await line.wait(GrantReleased)
        records.agree()
        standing.asked = []
        await line.say(a_report_of(issued, unknown="grant_of_a_stranger"))
        ended = await drift(line, DriftKind.HOLDER_OF_ENDED_GRANT)
        stranger = await drift(line, DriftKind.HOLDER_OF_UNKNOWN_GRANT)
        await eventually(lambda: standing.asked)
    assert {(seal.grant, seal.stop) for seal in standing.asked} == {(issued.grant, True)}
    assert (ended.heals, stranger.heals) == (True, False)


async def test_an_empty_report_is_told_and_stops_and_frees_nothing(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1")
    async with others(line) as records, quick(surroundings), ledger(surroundings) as rows:
        issued = await running(line)
        records.agree(issued)
        await line.say(a_report_of())
        found = await drift(line, DriftKind.CLAIM_WITHOUT_HOLDER)
        held = await rows.fetchval("SELECT count(*) FROM lines WHERE live")
    assert (found.subject, found.node) == (issued.grant, N1)
    assert (held, standing.asked, line.facts(GrantReleased)) == (1, [], [])


async def test_a_lease_that_stays_away_is_a_drift_and_the_renewal_writes_it_again(
    surroundings: Infrastructure, line: Wire, servers: Servers
) -> None:
    await say_fleet(line, "n1")
    async with others(line) as records, Redis.from_url(servers.operator_redis_url) as redis:
        async with quick(surroundings, renews=3600):
            issued = await running(line)
            records.agree(issued)
            await line.say(a_report_of(issued))
            await redis.flushall()
            found = await drift(line, DriftKind.LEASE_MISSING)
        async with quick(surroundings):
            await eventually(lambda: found.drift in {fact.drift for fact in line.facts(DriftCleared)})
            assert await redis.dbsize() == 1
    assert found.subject == issued.parts[0].devices[0].device


@pytest.mark.parametrize("limit", [1, 5_000])
async def test_admission_and_dispatch_tell_what_is_open_page_by_page_and_agree_with_the_ledger(
    surroundings: Infrastructure, servers: Servers, line: Wire, limit: int
) -> None:
    await say_fleet(line, "n1")
    admission = build_admission(await servers.infrastructure("admission"), AdmissionSettings(clock_seconds=0.1))
    dispatch = build_dispatch(await servers.infrastructure("dispatch"), DispatchSettings())
    async with quick(surroundings):
        for service in (admission, dispatch):
            await service.start()
        try:
            await line.say(*(envelope_of(fact) for fact in WISHES))
            issued = await line.wait(GrantIssued, 3)
            charges, runs = set[str](), set[str]()

            async def told() -> bool:
                charged = await pages(line, "call.job.charges", ChargesPage, limit)
                charges.update(each.job for page in charged for each in page.items)
                opened = await pages(line, "call.run.open", RunsPage, limit)
                runs.update(each.grant for page in opened for each in page.items)
                return len(charges) == len(runs) == 3

            await eventually(told)
        finally:
            for service in (admission, dispatch):
                await service.stop()
    assert charges == {each.job for each in issued}
    assert runs == {each.grant for each in issued}
    assert line.facts(DriftFound) == []


WISHES: tuple[RequestApplied | RequestSubmitted, ...] = (
    a_queue(h100=8),
    *(a_submission(name) for name in ("one", "two", "three")),
)


def envelope_of(fact: RequestApplied | RequestSubmitted) -> Envelope:
    return an_envelope(fact, key=fact.job if isinstance(fact, RequestSubmitted) else fact.name)


async def pages(line: Wire, subject: str, kind: type[P], limit: int) -> list[P]:
    found: list[P] = []
    after: str | None = ""
    while after is not None:
        found.append(await ask(line, subject, PageQuery(after=after, limit=limit), kind))
        after = found[-1].following
    return found
