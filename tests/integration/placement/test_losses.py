"""Rules R6 to R8, R11 and G7 on real servers: reboots, silence, stuck ends, drains, and a person's word."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from libs.config import Infrastructure
from schemas.base import Event
from schemas.calls import HolderVerdict, Verdict
from schemas.fleet import Mark, MarkEffect
from schemas.ids import DrainId, GrantId, node_id
from schemas.reasons import Code
from schemas.workload import (
    GrantCleared,
    GrantConfirmed,
    GrantIssued,
    GrantRefused,
    GrantReleased,
    GrantRevoked,
    GrantSuspected,
    ReleaseProof,
)
from services.placement.core.grant import Word
from services.placement.store.changes import Changes
from tests.support.builders import a_demand
from tests.support.eventually import eventually
from tests.support.placements import (
    CLUSTER,
    Agents,
    a_node_of,
    a_report,
    admitted,
    cancelled,
    claim,
    hello,
    hello_once,
    ledger,
    placement,
    refusal,
    run_ended,
    say_fleet,
)
from tests.support.servers import Servers
from tests.support.wire import Wire

N1 = node_id(CLUSTER, "n1")
SHORT: dict[str, Any] = {"suspect_after_seconds": 1, "node_lost_after_seconds": 2, "cluster_lost_after_seconds": 2}


async def running(
    line: Wire, name: str = "train", devices: int = 1, count: int = 1, boot: str = "boot-1"
) -> GrantIssued:
    """Admit a job and claim its grant."""
    await line.say(admitted(name, devices))
    issued = (await line.wait(GrantIssued, count))[-1]
    assert (await claim(line, issued, boot=boot)).granted
    await line.wait(GrantConfirmed, count)
    return issued


async def test_r6_a_hello_under_another_boot_frees_what_was_claimed_under_the_old_one(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings):
        await hello(line, "n1", boot="boot-1")
        issued = await running(line)
        await hello(line, "n1", boot="boot-2", incarnation="agent-2")
        (revoked,) = await line.wait(GrantRevoked)
        (released,) = await line.wait(GrantReleased)
        late = await claim(line, issued, boot="boot-1")
    assert (revoked.reason.code, released.proof) == (Code.BOOT_ENDED, ReleaseProof.BOOT_ENDED)
    assert not late.granted


async def test_r6_a_late_message_of_an_ended_boot_ends_nothing_and_claims_nothing(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings), ledger(surroundings) as rows:
        await hello(line, "n1", boot="boot-0", incarnation="agent-0")
        await hello(line, "n1", boot="boot-1")
        issued = await running(line)
        await hello(line, "n1", boot="boot-0", incarnation="agent-0")
        await line.say(a_report("n1", boot="boot-0", sequence=99), a_report("n1", boot="boot-9", sequence=100))
        await line.say(admitted("other"))
        _, other = await line.wait(GrantIssued, 2)
        refused = await claim(line, other, boot="boot-0")
        assert await rows.fetchval("SELECT state FROM parts WHERE grant_id = $1", issued.grant) == "Claimed"
    assert (refused.granted, refused.reason.code if refused.reason else None) == (False, Code.BOOT_ENDED)


async def test_r6_a_hello_or_claim_that_was_long_on_its_way_ends_no_boot_though_nobody_has_heard_of_its_own(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings), ledger(surroundings) as rows:
        await hello(line, "n1", boot="boot-2", incarnation="agent-2")
        issued = await running(line, boot="boot-2")
        late = [await hello_once(line, "n1", boot="boot-1", incarnation="agent-1", boots=n) for n in (0, 0)]
        assert not (await claim(line, issued, boot="boot-0", instance="other")).granted
        assert await rows.fetchval("SELECT state FROM parts WHERE grant_id = $1", issued.grant) == "Claimed"
        known = await rows.fetch("SELECT boot, ended_at IS NULL AS lives FROM boots ORDER BY boot")
    assert [answer.boots for answer in late] == [1, 1]
    assert [tuple(row) for row in known] == [("boot-0", True), ("boot-2", True)]


async def test_r6_a_boot_that_a_claim_made_known_ends_the_others_when_its_agent_says_hello(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings):
        await hello(line, "n1", boot="boot-1")
        issued = await running(line)
        assert not (await claim(line, issued, boot="boot-2", instance="other")).granted
        await hello(line, "n1", boot="boot-2", incarnation="agent-2")
        (released,) = await line.wait(GrantReleased)
    assert released.proof is ReleaseProof.BOOT_ENDED


async def test_g6_a_boot_is_known_when_another_incarnation_of_the_agent_made_it_known(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings):
        known = [
            (await hello(line, "n1", boot=boot, incarnation=agent)).boot_known
            for boot, agent in (("b1", "a1"), ("b1", "a1"), ("b1", "a2"), ("b2", "a3"))
        ]
    assert known == [False, False, True, False]


async def test_g7_a_hello_is_told_what_to_keep_and_what_to_stop(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    standing.busy = {N1}
    await say_fleet(line, "n1")
    async with placement(surroundings):
        kept = await running(line, "kept")
        stopped = await running(line, "stopped", count=2)
        await line.say(cancelled("stopped"))
        await line.wait(GrantRevoked)
        holders = [
            {"grant": grant, "epoch": epoch, "run": "run", "instance": "i", "devices": ()}
            for grant, epoch in ((kept.grant, kept.epoch), (stopped.grant, stopped.epoch), ("grant_none", 1))
        ]
        said = await hello(line, "n1", holders=holders)
    assert said.verdicts == (
        HolderVerdict(grant=kept.grant, verdict=Verdict.KEEP),
        HolderVerdict(grant=stopped.grant, verdict=Verdict.STOP),
        HolderVerdict(grant=GrantId("grant_none"), verdict=Verdict.UNKNOWN),
    )


async def test_r7_what_is_not_started_by_its_deadline_is_released_and_said_as_a_timeout(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings, start_deadline_seconds=1):
        await line.say(admitted("train", demand=a_demand(2)))
        (revoked,) = await line.wait(GrantRevoked)
        (released,) = await line.wait(GrantReleased)
    assert (revoked.reason.code, released.proof) == (Code.PODS_READY_TIMEOUT, ReleaseProof.NEVER_CLAIMED)


async def test_r7_r8_silence_marks_then_ends_the_attempt_and_never_frees_the_device(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=1)
    async with placement(surroundings):
        await running(line)
    async with placement(surroundings, refusal_repeat_seconds=0, **SHORT), ledger(surroundings) as rows:
        suspected, lost = await line.wait(GrantSuspected, 2)
        (revoked,) = await line.wait(GrantRevoked)
        assert [suspected.reason.code, lost.reason.code] == [Code.HEARTBEAT_LOST, Code.NODE_LOST]
        assert (revoked.reason.code, revoked.nodes) == (Code.NODE_LOST, (N1,))
        await line.say(admitted("next", after=5))
        refused = await refusal(line, Code.WAITING_FOR_CAPACITY)
        assert await rows.fetchval("SELECT count(*) FROM lines WHERE live") == 1
    assert refused.reason.numbers["free"] == 0
    assert line.facts(GrantReleased) == []


async def test_r7_while_the_broker_is_away_no_node_is_silent(
    surroundings: Infrastructure, line: Wire, servers: Servers
) -> None:
    patient = {"suspect_after_seconds": 15, "node_lost_after_seconds": 60, "cluster_lost_after_seconds": 60}
    await say_fleet(line, "n1")
    async with placement(surroundings, **patient) as (service,), ledger(surroundings) as rows:
        await running(line)
        servers.kill("nats")
        await eventually(lambda: not service.bus.connected)
        long_silent = "SELECT bool_and(now() > heard_at + interval '16 s') FROM nodes WHERE heard_at IS NOT NULL"
        await eventually(lambda: rows.fetchval(long_silent), seconds=60)
        await servers.start("nats")
        await eventually(lambda: service.bus.connected and line.connection.is_connected, seconds=30)
        assert await rows.fetchval("SELECT count(suspect_since) FROM nodes") == 0
        assert await rows.fetchval("SELECT array_agg(state) FROM parts") == ["Claimed"]
        assert await eventually(lambda: rows.fetchval("SELECT count(suspect_since) FROM nodes"), seconds=60)


@pytest.mark.parametrize("listened", [False, True])
async def test_r7_a_node_is_given_up_for_the_time_in_which_it_could_have_been_heard(
    surroundings: Infrastructure, line: Wire, listened: bool
) -> None:
    patient = {"suspect_after_seconds": 2, "node_lost_after_seconds": 300, "cluster_lost_after_seconds": 300}
    await say_fleet(line, "n1")
    async with placement(surroundings), ledger(surroundings) as rows:
        await running(line)
        await eventually(lambda: rows.fetchval("SELECT count(*) = 1 FROM listened"))
    async with ledger(surroundings) as rows:
        await rows.execute("UPDATE nodes SET heard_at = heard_at - interval '400 s'")
        if not listened:
            await rows.execute("UPDATE listened SET at = at - interval '400 s'")
    async with placement(surroundings, **patient), ledger(surroundings) as rows:
        await line.wait(GrantSuspected)
        assert (len(await line.wait(GrantRevoked)) == 1) if listened else (line.facts(GrantRevoked) == [])
        assert await rows.fetchval("SELECT bool_or(heard_at < now() - interval '300 s') FROM nodes") == listened


async def test_r7_a_node_that_is_back_in_time_loses_its_mark(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1", devices=2)
    late: dict[str, Any] = {**SHORT, "node_lost_after_seconds": 600, "cluster_lost_after_seconds": 600}
    async with placement(surroundings):
        await running(line)
    async with placement(surroundings, **late):
        await line.wait(GrantSuspected)
        await line.say(admitted("next"))
        refused = await refusal(line, Code.WAITING_FOR_CAPACITY)
        assert refused.reason.numbers["held"] == 1

        async def heard() -> bool:
            await line.say(a_report("n1", sequence=len(line.heard)))
            return len(line.facts(GrantIssued)) == 2

        await eventually(heard, every=0.2)
        await line.wait(GrantCleared)
    assert line.facts(GrantRevoked) == []


async def test_r7_s22_an_end_without_a_proof_is_escalated_and_the_node_offers_nothing_more(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    standing.busy = {N1}
    await say_fleet(line, "n1", devices=2)
    async with placement(surroundings, stuck_after_seconds=1, refusal_repeat_seconds=0), ledger(surroundings) as rows:
        issued = await running(line)
        await line.say(run_ended(issued))
        (escalated,) = await line.wait(GrantSuspected)
        assert escalated.reason.code is Code.STUCK_TERMINATION
        await line.say(admitted("next"))
        refused = await refusal(line, Code.WAITING_FOR_CAPACITY)
        assert "held on n1 (placement: StuckTermination" in refused.reason.message
        assert await rows.fetchval("SELECT seal_note FROM parts") == Code.STILL_RUNNING


@pytest.mark.parametrize("escalated", [True, False])
async def test_r11_a_named_person_frees_an_escalated_part_and_no_other(
    surroundings: Infrastructure, line: Wire, standing: Agents, escalated: bool
) -> None:
    standing.busy = {N1}
    await say_fleet(line, "n1")
    async with (
        placement(surroundings, stuck_after_seconds=0 if escalated else 600) as (service,),
        ledger(surroundings) as rows,
    ):
        issued = await running(line)
        await line.say(run_ended(issued))
        await line.wait(GrantSuspected if escalated else GrantRevoked)
        async with service.turn() as turn:
            freed = await Changes(lambda _: None).override(turn, issued.grant, N1, Word("ada", "the node was scrapped"))
        said = await rows.fetch("SELECT person, reason FROM overrides")
        if escalated:
            (released,) = await line.wait(GrantReleased)
            assert released.proof is ReleaseProof.OVERRIDE
    assert (freed, len(said)) == (escalated, int(escalated))


@pytest.mark.usefixtures("standing")
async def test_a_drained_node_ends_its_grants_and_takes_no_new_ones(surroundings: Infrastructure, line: Wire) -> None:
    mark = Mark(
        drain=DrainId("drain_1"),
        effect=MarkEffect.DRAIN,
        owner="ops",
        reason="new fans",
        session="s1",
        since=datetime(2026, 3, 1, tzinfo=UTC),
    )
    await say_fleet(line, "n1", "n2")
    async with placement(surroundings):
        first = await running(line, devices=8)
        name = first.parts[0].node_name
        await line.say(a_node_of(name, version=2, marks=[mark]))
        (revoked,) = await line.wait(GrantRevoked)
        await line.wait(GrantReleased)
        await line.say(admitted("a", 8), admitted("b", 8, after=1))
        _, second = await line.wait(GrantIssued, 2)
        refused = await refusal(line, Code.WAITING_FOR_CAPACITY)
    assert (revoked.reason.code, revoked.reason.message) == (Code.DRAINED, f"{name}: new fans")
    assert second.parts[0].node_name != name
    assert f"8 more held on {name} (ops: new fans, since 2026-03-01" in refused.reason.message


async def test_a_fact_that_nobody_answered_is_said_again_under_its_own_id(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("train"), admitted("huge", 900))
        await line.wait(GrantIssued)
        await refusal(line, Code.CAN_NEVER_FIT)
        await eventually(lambda: rows.fetchval("SELECT count(*) = 0 FROM outbox WHERE sent_at IS NULL"))
        await rows.execute("UPDATE outbox SET sent_at = sent_at - interval '1 hour'")
    unanswered = {fact_of(line, GrantIssued), fact_of(line, GrantRefused)}
    line.heard.clear()
    async with placement(surroundings, unanswered_seconds=0):
        await eventually(lambda: {envelope.id for envelope in line.heard} == unanswered)
    assert len(unanswered) == 2


async def test_s55_the_release_is_said_again_when_the_end_of_its_attempt_is(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    over = cancelled("train")
    async with placement(surroundings) as (service,), ledger(surroundings) as rows:
        await line.say(admitted("train"))
        (issued,) = await line.wait(GrantIssued)
        await line.say(run_ended(issued))
        await line.wait(GrantReleased)
        await line.say(over)
        await eventually(lambda: rows.fetchval("SELECT state = 'Over' FROM attempts"))
        await eventually(lambda: rows.fetchval("SELECT count(*) = 0 FROM outbox WHERE sent_at IS NULL"))
        await rows.execute("UPDATE outbox SET sent_at = sent_at - interval '1 hour'")
        expected = {fact_of(line, GrantRevoked), fact_of(line, GrantReleased)}
        line.heard.clear()
        await line.say(over, again=".2")
        await eventually(lambda: {e.id for e in line.heard if e.id != over.id} == expected)
        assert service.ready


async def test_s55_an_end_is_said_again_with_its_issue_until_the_run_has_ended_for_dispatch_too(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("train"))
        (issued,) = await line.wait(GrantIssued)
        await line.say(cancelled("train"))
        await line.wait(GrantReleased)
        await eventually(lambda: rows.fetchval("SELECT count(*) = 0 FROM outbox WHERE sent_at IS NULL"))
        await rows.execute("UPDATE outbox SET sent_at = sent_at - interval '1 hour'")
    expected = {fact_of(line, kind) for kind in (GrantIssued, GrantRevoked, GrantReleased)}
    line.heard.clear()
    async with placement(surroundings, unanswered_seconds=0), ledger(surroundings) as rows:
        await eventually(lambda: {envelope.id for envelope in line.heard} == expected)
        await line.say(run_ended(issued))
        await eventually(lambda: rows.fetchval("SELECT run_over FROM grants"))


async def test_s55_the_end_of_a_grant_is_said_again_when_the_result_of_its_run_is(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("train"))
        (issued,) = await line.wait(GrantIssued)
        await line.say(cancelled("train"))
        await line.wait(GrantReleased)
        result = run_ended(issued)
        await line.say(result)
        await eventually(lambda: rows.fetchval("SELECT run_over FROM grants"))
        await eventually(lambda: rows.fetchval("SELECT count(*) = 0 FROM outbox WHERE sent_at IS NULL"))
        await rows.execute("UPDATE outbox SET sent_at = sent_at - interval '1 hour'")
        expected = {fact_of(line, GrantRevoked), fact_of(line, GrantReleased)}
        line.heard.clear()
        await line.say(result, again=".2")
        await eventually(lambda: {e.id for e in line.heard if e.id != result.id} == expected)


def fact_of(line: Wire, kind: type[Event]) -> UUID:
    """The id of the last fact of a kind."""
    return [envelope.id for envelope in line.heard if isinstance(envelope.data, kind)][-1]


@pytest.mark.usefixtures("standing")
async def test_a_gang_is_claimed_and_released_part_by_part(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1", "n2")
    async with placement(surroundings):
        await line.say(admitted("gang", demand=a_demand(8, replicas=2)))
        (issued,) = await line.wait(GrantIssued)
        assert (await claim(line, issued, 0)).granted
        assert (await claim(line, issued, 1)).granted
        await line.wait(GrantConfirmed, 2)
        await line.say(run_ended(issued))
        released = await line.wait(GrantReleased, 2)
    assert sorted(part.remaining for part in released) == [0, 1]
    assert {part.node for part in released} == {part.node for part in issued.parts}
