"""Rules R1 to R5 of the grant protocol, on real servers."""

import asyncio

import asyncpg
import pytest

from libs.config import Infrastructure
from libs.resources.span import Device
from schemas.ids import node_id
from schemas.reasons import Code
from schemas.workload import (
    GrantConfirmed,
    GrantIssued,
    GrantRefused,
    GrantReleased,
    GrantRevoked,
    ReleaseProof,
)
from services.placement.store.grants import span_text
from tests.support.builders import a_demand, an_exit
from tests.support.eventually import eventually
from tests.support.placements import (
    CLUSTER,
    Agents,
    a_node_of,
    admitted,
    cancelled,
    claim,
    devices_of,
    ledger,
    placement,
    refusal,
    run_ended,
    say_fleet,
)
from tests.support.wire import Wire

COPIED = "INSERT INTO lines (grant_id, node, rank, device, span) SELECT grant_id, node, 9, device, span FROM lines"
SLICED = """
INSERT INTO lines (kind, node, device, span) SELECT 'hold', node, device, $1::text::int8multirange FROM lines
"""


async def test_r1_a_gang_is_issued_whole_with_devices_of_the_ledger(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1", "n2")
    async with placement(surroundings):
        await line.say(admitted("train", demand=a_demand(8, replicas=2)))
        (issued,) = await line.wait(GrantIssued)
    assert [(part.node_name, len(part.devices)) for part in issued.parts] == [("n1", 8), ("n2", 8)]
    assert [replica.rank for part in issued.parts for replica in part.replicas] == [0, 1]
    assert {device.device for part in issued.parts for device in part.devices} == {
        *devices_of("n1", 8),
        *devices_of("n2", 8),
    }


async def test_two_admissions_of_one_attempt_that_come_together_are_one_and_the_newest(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    await line.say(admitted("train", 2, version=5), admitted("train", 1, version=3))
    async with placement(surroundings), ledger(surroundings) as rows:
        (issued,) = await line.wait(GrantIssued)
        versions = await rows.fetch("SELECT version FROM attempts")
    assert len(issued.parts[0].devices) == 2
    assert [row["version"] for row in versions] == [5]


async def test_r1_epochs_of_one_device_rise_from_grant_to_grant(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1", devices=1)
    async with placement(surroundings):
        await line.say(admitted("first"), admitted("second", after=1))
        (first,) = await line.wait(GrantIssued)
        await line.say(cancelled("first"))
        _, second = await line.wait(GrantIssued, 2)
    assert first.parts[0].devices == second.parts[0].devices
    assert second.epoch > first.epoch


async def test_r1_the_database_refuses_a_second_live_line_on_the_same_silicon(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=1)
    async with placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("train"))
        await line.wait(GrantIssued)
        with pytest.raises(asyncpg.ExclusionViolationError):
            await rows.execute(COPIED)
        ordinal = await rows.fetchval("SELECT ordinal FROM devices")
        with pytest.raises(asyncpg.ExclusionViolationError):
            await rows.execute(SLICED, span_text(Device(ordinal, 40_960).memory_slices(7, 1)))


async def test_r2_one_start_is_allowed_and_asked_again_gets_the_same_answer(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings):
        await line.say(admitted("train", 2))
        (issued,) = await line.wait(GrantIssued)
        answers = [await claim(line, issued), await claim(line, issued)]
        other = await claim(line, issued, instance="instance-2")
        foreign = await claim(line, issued, cluster="cluster_other", instance="instance-3")
        (confirmed,) = await line.wait(GrantConfirmed)
    assert [answer.granted for answer in answers] == [True, True]
    assert (other.granted, other.reason.code if other.reason else None) == (False, Code.ALREADY_STARTED)
    assert not foreign.granted
    assert (confirmed.instance, confirmed.boot) == ("instance-1", "boot-1")
    assert confirmed.devices == tuple(device.device for device in issued.parts[0].devices)


async def test_r2_of_two_instances_at_once_one_starts(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings, replicas=2):
        await line.say(admitted("train", 2))
        (issued,) = await line.wait(GrantIssued)
        answers = await asyncio.gather(*(claim(line, issued, instance=f"instance-{n}") for n in range(8)))
    assert sorted(answer.granted for answer in answers) == [False] * 7 + [True]


async def test_r2_a_claim_of_an_unknown_grant_or_epoch_is_refused(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings):
        await line.say(admitted("train"))
        (issued,) = await line.wait(GrantIssued)
        for changed in ({"grant": "grant_none"}, {"epoch": issued.epoch + 1}, {"node": "node_none"}):
            refused = await claim(line, issued, **changed)
            assert (refused.granted, refused.reason.code if refused.reason else None) == (False, Code.GRANT_UNKNOWN)


async def test_r3_free_devices_of_the_node_are_bound_instead(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1")
    seen = devices_of("n1", 8)[4:6]
    async with placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("train", 2))
        (issued,) = await line.wait(GrantIssued)
        answer = await claim(line, issued, devices=seen)
        (confirmed,) = await line.wait(GrantConfirmed)
        held = await rows.fetch("SELECT device FROM lines WHERE live ORDER BY id")
        await line.say(admitted("next", 6))
        _, following = await line.wait(GrantIssued, 2)
    assert answer.granted
    assert confirmed.devices == seen
    assert tuple(row["device"] for row in held) == seen
    assert not {device.device for device in following.parts[0].devices} & set(seen)


async def test_r3_the_epoch_of_a_device_that_was_bound_instead_rises_to_the_grants(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    seen = devices_of("n1", 8)[4:6]
    async with placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("train", 2))
        (issued,) = await line.wait(GrantIssued)
        assert (await claim(line, issued, devices=seen)).granted
        epochs = await rows.fetch("SELECT last_epoch FROM devices WHERE device = ANY($1::text[])", list(seen))
    assert [row["last_epoch"] for row in epochs] == [issued.epoch] * 2


async def test_r3_devices_of_another_grant_are_a_mismatch(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings):
        await line.say(admitted("one", 2), admitted("two", 2, after=1))
        one, two = await line.wait(GrantIssued, 2)
        taken = tuple(device.device for device in two.parts[0].devices)
        refused = await claim(line, one, devices=taken)
        short = await claim(line, one, devices=taken[:1])
    assert (refused.granted, refused.reason.code if refused.reason else None) == (False, Code.DEVICE_MISMATCH)
    assert not short.granted


async def test_r4_what_was_never_claimed_is_released_at_once_and_its_late_claim_refused(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings):
        await line.say(admitted("train", 2))
        (issued,) = await line.wait(GrantIssued)
        await line.say(cancelled("train"))
        (revoked,) = await line.wait(GrantRevoked)
        (released,) = await line.wait(GrantReleased)
        late = await claim(line, issued)
    assert (revoked.reason.code, revoked.nodes) == (Code.CANCELLED, ())
    assert (released.proof, released.claimed, released.remaining) == (ReleaseProof.NEVER_CLAIMED, False, 0)
    assert (late.granted, late.reason.code if late.reason else None) == (False, Code.GRANT_OVER)


async def test_r4_r5_a_claimed_part_is_released_by_its_seal_with_the_exit_record(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    standing.exit = an_exit(0)
    await say_fleet(line, "n1")
    async with placement(surroundings):
        await line.say(admitted("train", 2))
        (issued,) = await line.wait(GrantIssued)
        assert (await claim(line, issued)).granted
        await line.say(run_ended(issued))
        (released,) = await line.wait(GrantReleased)
        again = await claim(line, issued)
    assert (released.proof, released.claimed, released.exit) == (ReleaseProof.SEAL, True, standing.exit)
    assert not again.granted
    (seal,) = {seal.model_dump_json(): seal for seal in standing.asked}.values()
    assert (seal.stop, seal.revocation, seal.grace_seconds) == (True, 3, 1)


async def test_r5_nothing_but_a_seal_of_this_revocation_frees_a_claimed_part(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", devices=1)
    async with placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("train"))
        (issued,) = await line.wait(GrantIssued)
        assert (await claim(line, issued)).granted
        for lie in ({"revocation": 2}, {"epoch": issued.epoch + 1}, {"devices": ()}, {"sealed": False}):
            standing.lies, standing.asked = lie, []
            await line.say(run_ended(issued))
            await rows.execute("UPDATE parts SET next_seal_at = now() WHERE state = 'Revoking'")
            await eventually(lambda: standing.asked)
            assert await rows.fetchval("SELECT count(*) FROM lines WHERE live") == 1
        standing.lies = {}
        await rows.execute("UPDATE parts SET next_seal_at = now()")
        await line.wait(GrantReleased)
        assert await rows.fetchval("SELECT count(*) FROM lines WHERE live") == 0


async def test_s25_a_device_whose_user_may_live_is_not_offered_and_the_wait_names_its_node(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    node = node_id(CLUSTER, "n1")
    standing.busy = {node}
    await say_fleet(line, "n1", devices=1)
    async with placement(surroundings, refusal_repeat_seconds=0):
        await line.say(admitted("x"))
        (x,) = await line.wait(GrantIssued)
        assert (await claim(line, x)).granted
        await line.say(cancelled("x"), admitted("y", after=5))
        await eventually(lambda: any(fact.reason.numbers.get("releasing") == 1 for fact in line.facts(GrantRefused)))
        assert line.facts(GrantRefused)[-1].reason.message == "needs 1, free 0, 1 awaiting confirmation from n1"
        assert len(line.facts(GrantIssued)) == 1
        standing.busy = set()
        await line.wait(GrantReleased)
        _, y = await line.wait(GrantIssued, 2)
    assert y.epoch > x.epoch


async def test_r9_a_withdrawal_that_overtakes_the_admission_is_remembered(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    async with placement(surroundings):
        await line.say(cancelled("train"))
        (early,) = await line.wait(GrantRefused)
        await line.say(admitted("train"), admitted("other"))
        (issued,) = await line.wait(GrantIssued)
        _, late = await line.wait(GrantRefused, 2)
    assert issued.name == "other"
    assert {(fact.reason.code, fact.final) for fact in (early, late)} == {(Code.ATTEMPT_OVER, True)}


async def test_a_later_attempt_ends_the_earlier_one(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1", devices=1)
    async with placement(surroundings):
        await line.say(admitted("train"))
        await line.wait(GrantIssued)
        await line.say(admitted("train", attempt=2, version=7))
        (revoked,) = await line.wait(GrantRevoked)
        _, second = await line.wait(GrantIssued, 2)
    assert (revoked.attempt, second.attempt) == (1, 2)


async def test_a_node_that_is_marked_stale_or_unreported_offers_nothing(
    surroundings: Infrastructure, line: Wire
) -> None:
    await line.say(a_node_of("n1", stale=True))
    async with placement(surroundings):
        await line.say(admitted("train", 2))
        refused = await refusal(line, Code.WAITING_FOR_CAPACITY)
        assert (refused.reason.code, refused.reason.numbers["held"]) == (Code.WAITING_FOR_CAPACITY, 8)
        await line.say(a_node_of("n1", version=2))
        await line.wait(GrantIssued)


async def test_of_many_that_wait_only_so_many_are_told_new_numbers(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1", devices=2)
    many = [admitted(f"w{number}", devices=2, after=number + 10) for number in range(8)]
    async with placement(surroundings, refusal_repeat_seconds=0, refusals_per_second=0.01):
        await line.say(admitted("x"), *many)
        (x,) = await line.wait(GrantIssued)
        await line.wait(GrantRefused, 8)
        await line.say(admitted("y"))  # takes the device that is left: other numbers
        await line.wait(GrantIssued, 2)
        await line.say(admitted("z", after=99))
        await line.wait(GrantRefused, 9)
    told = [fact.job for fact in line.facts(GrantRefused)]
    assert len(told) == len(set(told)) == 9
    assert x.job not in told


async def test_what_is_not_among_the_most_urgent_is_placed_by_a_whole_look(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=2)
    async with placement(surroundings, urgent_attempts=1, whole_look_seconds=0.5, cycle_seconds=0.1):
        await line.say(admitted("first"), admitted("large", devices=2, after=5))
        await line.wait(GrantRefused)
        await line.say(admitted("small", after=10))
        first, small = await line.wait(GrantIssued, 2)
    assert (first.name, small.name) == ("first", "small")
