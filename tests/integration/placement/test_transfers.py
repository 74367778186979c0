"""Rules M1, M4 and M5: a move and a grant exclude each other in the ledger, and a hold goes by its owner epoch."""

import asyncio

import asyncpg
import pytest

from libs.config import Infrastructure
from schemas.ids import node_id
from schemas.moves import TransferHoldAnswer
from schemas.reasons import Code
from schemas.workload import GrantIssued, GrantRevoked
from tests.support.eventually import eventually
from tests.support.placements import (
    CLUSTER,
    OTHER,
    a_node_of,
    admitted,
    cancelled,
    claim,
    drop_hold,
    hold,
    ledger,
    owned_by,
    placement,
    refusal,
    say_fleet,
)
from tests.support.wire import Wire

LIVE = "SELECT kind, count(*)::int AS lines FROM lines WHERE live GROUP BY kind ORDER BY kind"
TAKEN = """
INSERT INTO lines (kind, node, device, span)
SELECT 'hold', node, device, int8multirange(int8range(lower(whole(ordinal)), lower(whole(ordinal)) + 1)) FROM devices
"""


async def held(line: Wire, name: str, move: int = 1) -> TransferHoldAnswer:
    """Ask until the node is held for its move."""
    answers: list[TransferHoldAnswer] = []

    async def ask() -> bool:
        answers.append(await hold(line, name, move=move))
        return answers[-1].held

    await eventually(ask)
    return answers[-1]


async def lines(rows: "asyncpg.Connection[asyncpg.Record]") -> dict[str, int]:
    return {row["kind"]: row["lines"] for row in await rows.fetch(LIVE)}


async def test_m1_a_hold_has_every_slot_of_its_node_and_no_grant_comes_in_between(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=2)
    async with placement(surroundings), ledger(surroundings) as rows:
        assert await held(line, "n1") == await hold(line, "n1")
        with pytest.raises(asyncpg.ExclusionViolationError):
            await rows.execute(TAKEN)
        await line.say(admitted("train"))
        waiting = await refusal(line, Code.WAITING_FOR_CAPACITY)
        assert await lines(rows) == {"hold": 2}
        assert "moves to other" in waiting.reason.message
        await drop_hold(line, "n1")
        await line.wait(GrantIssued)
        assert await lines(rows) == {"grant": 1}


@pytest.mark.usefixtures("standing")
async def test_m1_a_hold_waits_for_what_is_granted_and_nothing_new_is_placed_meanwhile(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=2)
    async with placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("first"))
        (first,) = await line.wait(GrantIssued)
        assert (await claim(line, first)).granted
        waits = await hold(line, "n1")
        assert (waits.held, waits.over, waits.reason and waits.reason.code) == (False, False, Code.STILL_GRANTED)
        assert waits.reason
        assert (first.grant in waits.reason.message, waits.reason.numbers) == (True, {"grants": 1})
        await line.say(admitted("second"))
        await refusal(line, Code.WAITING_FOR_CAPACITY)
        assert await lines(rows) == {"grant": 1}
        await line.say(cancelled("first"))
        await held(line, "n1")
        assert await lines(rows) == {"hold": 2}
        assert line.facts(GrantIssued) == [first]


@pytest.mark.usefixtures("standing")
async def test_m1_a_hold_that_is_to_stop_what_runs_revokes_it_as_drained(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=2)
    async with placement(surroundings):
        await line.say(admitted("first"))
        (first,) = await line.wait(GrantIssued)
        assert (await claim(line, first)).granted
        assert not (await hold(line, "n1", stop=True)).held
        (revoked,) = await line.wait(GrantRevoked)
        assert (revoked.grant, revoked.reason.code) == (first.grant, Code.DRAINED)
        await held(line, "n1")


async def test_m1_of_holds_and_grants_in_a_race_each_node_has_one_kind_of_line(
    surroundings: Infrastructure, line: Wire
) -> None:
    names = [f"n{number}" for number in range(1, 9)]
    await say_fleet(line, *names, devices=1)
    async with placement(surroundings, replicas=2), ledger(surroundings) as rows:
        await eventually(lambda: _known(rows, len(names)))
        jobs = [admitted(f"job{number}") for number in range(8)]
        answers = await asyncio.gather(
            line.say(*jobs), *(hold(line, name) for name in names[:4]), *(hold(line, name) for name in names[:4])
        )
        await line.wait(GrantIssued, 4)
        taken = {answer.move for answer in answers if answer is not None and answer.held}
        now = {move for move in [(await hold(line, name)) for name in names[:4]] if move.held}
        assert taken <= {answer.move for answer in now}
        kinds = await rows.fetch("SELECT device, array_agg(kind) AS kinds FROM lines WHERE live GROUP BY device")
        assert all(len(row["kinds"]) == 1 for row in kinds)
        assert sum(row["kinds"] == ["hold"] for row in kinds) == len(now)


async def _known(rows: "asyncpg.Connection[asyncpg.Record]", nodes: int) -> bool:
    return bool(await rows.fetchval("SELECT count(*) = $1 FROM nodes", nodes))


async def test_m1_a_hold_lives_through_a_restart_and_goes_when_its_move_is_given_up(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=2)
    async with placement(surroundings):
        await held(line, "n1")
    async with placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("train"))
        await refusal(line, Code.WAITING_FOR_CAPACITY)
        assert await lines(rows) == {"hold": 2}
        assert [await drop_hold(line, "n1"), await drop_hold(line, "n1")] == [await drop_hold(line, "n1")] * 2
        await line.wait(GrantIssued)


async def test_m1_a_request_that_comes_after_its_drop_takes_nothing(surroundings: Infrastructure, line: Wire) -> None:
    await say_fleet(line, "n1", "n2", devices=2)
    async with placement(surroundings), ledger(surroundings) as rows:
        await held(line, "n1")
        await drop_hold(line, "n1")
        await drop_hold(line, "n2")
        late = [await hold(line, "n1"), await hold(line, "n2")]
        assert [(each.held, each.over) for each in late] == [(False, True)] * 2
        assert await lines(rows) == {}
        await held(line, "n1", move=2)


async def test_m4_a_higher_owner_epoch_drops_a_hold_and_an_equal_or_lower_one_does_not(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=2)
    async with placement(surroundings), ledger(surroundings) as rows:
        await held(line, "n1")
        await line.say(owned_by(OTHER, 1, "n1", 2, version=2))
        await line.say(a_node_of("n1", 2, version=3), a_node_of("n9", version=1))
        await eventually(lambda: _known(rows, 2))
        assert await lines(rows) == {"hold": 2}
        await line.say(owned_by(OTHER, 2, "n1", 2, version=4))
        await eventually(lambda: _empty(rows))
        assert (await hold(line, "n1")).over
        early = await hold(line, "n1", move=3, owner_epoch=3, source=OTHER)
        assert (early.held, early.over, early.reason and early.reason.code) == (False, False, Code.NODE_UNKNOWN)


async def _empty(rows: "asyncpg.Connection[asyncpg.Record]") -> bool:
    return await lines(rows) == {}


async def test_m4_d7_moved_there_and_back_before_it_was_heard_the_hold_is_dropped(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=2)
    async with placement(surroundings), ledger(surroundings) as rows:
        await held(line, "n1")
        await line.say(owned_by(CLUSTER, 3, "n1", 2, version=5))
        await eventually(lambda: _empty(rows))
        await line.say(owned_by(OTHER, 2, "n1", 2, version=4), admitted("train"))
        (issued,) = await line.wait(GrantIssued)
        assert issued.cluster == CLUSTER
        owners = [tuple(row) for row in await rows.fetch("SELECT DISTINCT owner, owner_epoch FROM devices")]
        assert owners == [(CLUSTER, 3)]
        assert (await claim(line, issued)).granted


async def test_m5_a_claim_of_a_node_that_has_another_owner_or_owner_epoch_starts_nothing(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=2)
    async with placement(surroundings), ledger(surroundings) as rows:
        await line.say(admitted("away"), admitted("back", after=1))
        away, back = await line.wait(GrantIssued, 2)
        # nothing but a hand in the ledger can do this while the hold and the grants exclude each other
        await rows.execute("UPDATE devices SET owner = $1, owner_epoch = 2", OTHER)
        refused = await claim(line, away)
        assert (refused.granted, refused.reason and refused.reason.code) == (False, Code.NOT_OWNER)
        await rows.execute("UPDATE devices SET owner = $1, owner_epoch = 3", CLUSTER)
        refused = await claim(line, back)
        assert (refused.granted, refused.reason and refused.reason.code) == (False, Code.NOT_OWNER)


async def test_m5_after_a_move_the_new_owner_gives_the_devices_out_and_the_old_one_claims_nothing(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", devices=2)
    async with placement(surroundings):
        await held(line, "n1")
        await line.say(owned_by(OTHER, 2, "n1", 2, version=2), admitted("train"))
        (issued,) = await line.wait(GrantIssued)
        assert (issued.cluster, issued.parts[0].node) == (OTHER, node_id(CLUSTER, "n1"))
        refused = await claim(line, issued, cluster=CLUSTER)
        assert (refused.granted, refused.reason and refused.reason.code) == (False, Code.NOT_OWNER)
        assert (await claim(line, issued)).granted
