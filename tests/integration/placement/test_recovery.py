"""R12: nodes tell a ledger that went back what they run; nothing is granted twice, nor before a person says so."""

from functools import partial

import asyncpg

from deploy.embedded.backup import RESTORED, TERM
from libs.config import Infrastructure
from schemas.ids import node_id
from schemas.reasons import Code
from schemas.workload import GrantConfirmed, GrantIssued, GrantRefused, GrantReleased, GrantRevoked, ReleaseProof
from tests.support.builders import a_demand
from tests.support.eventually import eventually
from tests.support.placements import (
    CLUSTER,
    Agents,
    a_run_of,
    admitted,
    cancelled,
    claim,
    hello,
    hello_once,
    ledger,
    placement,
    run_ended,
    say_fleet,
)
from tests.support.restores import go_back, lift, told, wipe_leases
from tests.support.servers import Servers
from tests.support.wire import Wire

N1, N2 = node_id(CLUSTER, "n1"), node_id(CLUSTER, "n2")


async def go_back_before_the_start(rows: "asyncpg.Connection[asyncpg.Record]", issued: GrantIssued) -> None:
    """Let the ledger be as a backup had it that was made between a grant and its start, whose deadline is past now."""
    await go_back(rows, keeps=[issued.grant])
    await rows.execute("UPDATE parts SET state = 'Issued', instance = NULL, boot = NULL, claimed_at = NULL")
    await rows.execute("UPDATE grants SET version = 1, start_deadline = now() - interval '1 hour'")


async def test_r12_the_run_of_a_forgotten_grant_is_its_attempt_s_claim_and_goes_on(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", "n2", devices=2)
    async with ledger(surroundings) as rows:
        async with placement(surroundings):
            await line.say(admitted("gang", demand=a_demand(2, replicas=2)), admitted("next", 1, after=9))
            (issued,) = await line.wait(GrantIssued)
            for part in range(2):
                assert (await claim(line, issued, part)).granted
        await go_back(rows)
        standing.runs = {part.node: (a_run_of(issued, place),) for place, part in enumerate(issued.parts)}
        line.heard.clear()
        async with placement(surroundings):
            (again,) = await line.wait(GrantIssued)
            confirmed = await line.wait(GrantConfirmed, 2)
            held = await rows.fetch("SELECT device FROM lines WHERE live")
            await lift(rows)
            standing.runs = {}
            await line.say(run_ended(again))
            await line.wait(GrantReleased, 2)
            _, following = await line.wait(GrantIssued, 2)
    assert (again.grant, again.epoch, again.parts) == (issued.grant, issued.epoch, issued.parts)
    assert {each.node for each in confirmed} == {N1, N2}
    assert len(held) == 4
    assert following.name == "next"
    assert following.epoch > issued.epoch + 2**32


async def test_r12_a_hello_from_before_the_restore_ends_no_boot(surroundings: Infrastructure, line: Wire) -> None:
    """It was told how many boots there were, and the ledger has forgotten one of them: the numbers are the same."""
    await say_fleet(line, "n1")
    async with ledger(surroundings) as rows, placement(surroundings):
        await hello(line, "n1", boot="boot-1")
        await hello(line, "n1", boot="boot-2")
        early = await hello_once(line, "n1", boot="boot-3", incarnation="agent-3")
        await rows.execute("DELETE FROM boots WHERE boot = 'boot-2'")
        await go_back(rows)
        await hello(line, "n1", boot="boot-4", incarnation="agent-4")
        late = await hello_once(line, "n1", boot="boot-3", incarnation="agent-3", boots=early.boots)
        standing = await rows.fetchval("SELECT array_agg(boot) FROM boots WHERE ended_at IS NULL")
    assert late.boots not in {None, early.boots}
    assert standing == ["boot-4"]


async def test_r12_a_run_that_no_attempt_is_known_for_holds_its_devices_and_is_stopped_after_the_lift(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", devices=1)
    standing.busy = {N1}
    async with ledger(surroundings) as rows:
        async with placement(surroundings):
            await line.say(admitted("forgotten"))
            (issued,) = await line.wait(GrantIssued)
            assert (await claim(line, issued)).granted
        await go_back(rows)
        await rows.execute("DELETE FROM attempts")
        standing.runs = {N1: (a_run_of(issued),)}
        line.heard.clear()
        async with placement(surroundings):
            await line.say(admitted("next"))
            await told(rows, 1)
            assert line.facts(GrantIssued) == []
            standing.asked = []
            await lift(rows)
            (revoked,) = await line.wait(GrantRevoked)
            await eventually(lambda: standing.asked)
            first = line.facts(GrantIssued)
            standing.busy = set()
            (released,) = await line.wait(GrantReleased)
            _, following = await line.wait(GrantIssued, 2)
    assert (revoked.grant, revoked.reason.code) == (issued.grant, Code.LEDGER_BEHIND)
    assert [fact.grant for fact in first] == [issued.grant]
    assert (standing.asked[0].grant, standing.asked[0].stop) == (issued.grant, True)
    assert (released.proof, following.name) == (ReleaseProof.SEAL, "next")


async def test_r12_what_an_old_ledger_still_grants_gives_way_to_the_later_run_on_its_devices(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", devices=1)
    async with ledger(surroundings) as rows:
        async with placement(surroundings):
            await line.say(admitted("old"), admitted("new", after=1))
            (old,) = await line.wait(GrantIssued)
            assert (await claim(line, old)).granted
            await line.say(cancelled("old"))
            _, new = await line.wait(GrantIssued, 2)
            assert (await claim(line, new)).granted
        await go_back(rows, keeps=[old.grant])
        await rows.execute("UPDATE attempts SET state = 'Granted' WHERE job = $1", old.job)
        await rows.execute("UPDATE parts SET state = 'Claimed', released_at = NULL, proof = NULL")
        await rows.execute("UPDATE grants SET live = true, revoked_at = NULL, revocation = NULL, version = 2")
        await rows.execute("UPDATE lines SET live = true")
        standing.runs, standing.busy = {N1: (a_run_of(new),)}, {N1}
        line.heard.clear()
        async with placement(surroundings):
            await told(rows, 1)
            assert line.facts(GrantReleased) == []  # how the old run ended may still be found
            await line.say(run_ended(old))
            (released,) = await line.wait(GrantReleased)
            (again,) = await line.wait(GrantIssued)
            live = await rows.fetch("SELECT grant_id FROM lines WHERE live")
    assert (released.grant, released.proof) == (old.grant, ReleaseProof.SUPERSEDED)
    assert (again.grant, [row["grant_id"] for row in live]) == (new.grant, [new.grant])


async def test_r12_a_node_that_has_not_told_stays_suspect_after_the_lift(
    surroundings: Infrastructure, servers: Servers, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", "n2", devices=1)
    standing.mute = {N1}
    async with ledger(surroundings) as rows:
        async with placement(surroundings):
            await line.say(admitted("first"))
            await line.wait(GrantIssued)
            await line.say(cancelled("first"))
            await line.wait(GrantReleased)
        await wipe_leases(servers)
        await go_back(rows)
        await rows.execute("DELETE FROM attempts")
        async with placement(surroundings):
            await told(rows, 1)
            await lift(rows)
            line.heard.clear()
            await line.say(admitted("one"), admitted("two", after=1))
            (issued,) = await line.wait(GrantIssued)
            assert issued.parts[0].node == N2
            standing.mute = set()
            _, other = await line.wait(GrantIssued, 2)
    assert other.parts[0].node == N1


async def test_r12_what_an_older_ledger_holds_as_not_started_is_no_proof_until_its_node_has_told(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", devices=1)
    async with ledger(surroundings) as rows:
        async with placement(surroundings):
            await line.say(admitted("early"))
            (issued,) = await line.wait(GrantIssued)
            assert (await claim(line, issued)).granted
        await go_back_before_the_start(rows, issued)
        standing.runs, standing.busy, standing.mute = {N1: (a_run_of(issued),)}, {N1}, {N1}
        line.heard.clear()
        async with placement(surroundings):
            await line.say(cancelled("early"))
            (revoked,) = await line.wait(GrantRevoked)
            await eventually(lambda: standing.asked)
            assert (revoked.nodes, line.facts(GrantReleased)) == ((N1,), [])
            standing.busy = set()
            (released,) = await line.wait(GrantReleased)
    assert (revoked.reason.code, released.proof) == (Code.CANCELLED, ReleaseProof.SEAL)


async def test_r12_a_start_that_the_ledger_forgot_is_not_given_up_at_its_deadline_but_claimed_when_its_node_tells(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", devices=1)
    async with ledger(surroundings) as rows:
        async with placement(surroundings):
            await line.say(admitted("early"))
            (issued,) = await line.wait(GrantIssued)
            assert (await claim(line, issued)).granted
        await go_back_before_the_start(rows, issued)
        standing.runs, standing.mute = {N1: (a_run_of(issued),)}, {N1}
        line.heard.clear()
        async with placement(surroundings):
            for _ in range(3):
                looked = await rows.fetchval("SELECT at FROM listened")
                assert await eventually(partial(rows.fetchval, "SELECT at > $1 FROM listened", looked))
            assert line.facts(GrantRevoked) == []
            standing.mute = set()
            (confirmed,) = await line.wait(GrantConfirmed)
    assert (confirmed.grant, line.facts(GrantRevoked)) == (issued.grant, [])


async def test_r12_a_backup_that_is_restored_twice_begins_another_term_each_time(surroundings: Infrastructure) -> None:
    async with ledger(surroundings) as rows:
        last = await rows.fetchval("SELECT last_value FROM epochs")
        terms = []
        for _ in range(2):
            await rows.execute("SELECT setval('epochs', $1)", last)  # as the backup has it
            terms.append(await rows.fetchval(RESTORED, TERM))
            later = await rows.fetchval("SELECT clock_timestamp() + interval '1.1 s'")
            assert await eventually(partial(rows.fetchval, "SELECT clock_timestamp() > $1", later))
        await rows.execute("SELECT setval('epochs', $1)", last)
    assert last + TERM <= terms[0] < terms[1]


async def test_r12_an_attempt_that_only_a_node_told_of_ends_no_earlier_one_and_is_given_nothing_more(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", devices=1)
    standing.busy = {N1}
    async with ledger(surroundings) as rows:
        async with placement(surroundings):
            await line.say(admitted("again", attempt=2))
            (issued,) = await line.wait(GrantIssued)
            assert (await claim(line, issued)).granted
        await go_back(rows)
        await rows.execute("DELETE FROM attempts")
        standing.runs = {N1: (a_run_of(issued),)}
        line.heard.clear()
        async with placement(surroundings):
            await told(rows, 1)
            await lift(rows)
            await line.wait(GrantRevoked)
            await line.say(admitted("again", attempt=1, version=12))
            standing.busy = set()
            _, first = await line.wait(GrantIssued, 2)
            line.heard.clear()
            await line.say(admitted("again", attempt=2, version=15))
            (refused,) = await line.wait(GrantRefused)
            await line.say(admitted("again", attempt=3, version=18))
            standing.runs = {}
            (third,) = await line.wait(GrantIssued)
    assert [fact.attempt for fact in (first, refused, third)] == [1, 2, 3]
    assert (refused.final, refused.reason.code) == (True, Code.LEDGER_BEHIND)
