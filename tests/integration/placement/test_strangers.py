"""R12: what a node runs of a grant that the ledger holds otherwise keeps its devices until it is proved over."""

import asyncpg

from libs.config import Infrastructure
from schemas.calls import Escalation, EscalationsPage, EscalationsQuery, LaunchOrder, Seal, Subject
from schemas.ids import grant_id, node_id
from schemas.reasons import Code
from schemas.workload import GrantIssued, GrantRefused, GrantReleased, GrantRevoked, ReleaseProof
from tests.support.builders import a_demand
from tests.support.eventually import eventually
from tests.support.placements import (
    CLUSTER,
    Agents,
    a_job,
    a_run_of,
    admitted,
    ask,
    claim,
    hello,
    ledger,
    placement,
    say_fleet,
)
from tests.support.restores import STOP, go_back, lift, told, wipe_leases
from tests.support.servers import Servers
from tests.support.wire import Wire

N1, N2 = node_id(CLUSTER, "n1"), node_id(CLUSTER, "n2")


async def a_gang_that_is_forgotten(
    surroundings: Infrastructure, servers: Servers, line: Wire, rows: "asyncpg.Connection[asyncpg.Record]"
) -> GrantIssued:
    """Let a gang over two nodes run, and the ledger forget it and its attempt."""
    async with placement(surroundings):
        await line.say(admitted("gang", demand=a_demand(2, replicas=2)))
        (issued,) = await line.wait(GrantIssued)
        for part in range(2):
            assert (await claim(line, issued, part)).granted
    await go_back(rows)
    await rows.execute("DELETE FROM attempts")
    await wipe_leases(servers)
    line.heard.clear()
    return issued


async def a_grant_that_is_made_again(
    surroundings: Infrastructure,
    servers: Servers,
    line: Wire,
    rows: "asyncpg.Connection[asyncpg.Record]",
    *,
    others: int = 1,
) -> tuple[GrantIssued, GrantIssued]:
    """Let a grant on the first node be forgotten, which tells nothing, and made again on another after the lift."""
    async with placement(surroundings):
        await line.say(admitted("again"))
        (earlier,) = await line.wait(GrantIssued)
        assert (await claim(line, earlier)).granted
    await go_back(rows)
    await wipe_leases(servers)
    line.heard.clear()
    async with placement(surroundings):
        await told(rows, others)
        await lift(rows)
        (again,) = await line.wait(GrantIssued)
        assert (await claim(line, again)).granted
    return earlier, again


async def asked_about(standing: Agents, grant: GrantIssued) -> Seal:
    """Wait until a stranger of this grant and epoch is asked for once more."""
    before = len(standing.asked)

    def found() -> list[Seal]:
        late = standing.asked[before:]
        return [seal for seal in late if (seal.grant, seal.epoch) == (grant.grant, grant.epoch) and not seal.revocation]

    return (await eventually(found))[0]


async def refused(line: Wire, name: str) -> None:
    """Wait until a cycle has found no devices for an attempt."""

    def found() -> bool:
        return any(fact.job == a_job(name) and fact.reason.numbers for fact in line.facts(GrantRefused))

    await eventually(found)


async def a_stranger_that_keeps_its_device(
    line: Wire,
    rows: "asyncpg.Connection[asyncpg.Record]",
    standing: Agents,
    earlier: GrantIssued,
    again: GrantIssued,
) -> Seal:
    """Let the silent node tell its run, see that "next" is not given the device, and return what the node is asked."""
    standing.mute = set()
    await told(rows, 2)
    await line.say(admitted("next"))
    await refused(line, "next")
    asked = await asked_about(standing, earlier)
    assert line.facts(GrantIssued) == [again]
    return asked


async def strangers_listed(line: Wire) -> list[Escalation]:
    """Return what is listed of strangers."""
    page = await ask(line, "call.grant.escalations", EscalationsQuery(), EscalationsPage)
    return [each for each in page.items if each.reason.code is Code.LEDGER_BEHIND and each.subject is Subject.PART]


async def test_r12_a_part_that_is_told_after_the_lift_of_a_grant_taken_up_without_it_keeps_its_devices_until_a_seal(
    surroundings: Infrastructure, servers: Servers, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", "n2", devices=2)
    async with ledger(surroundings) as rows:
        issued = await a_gang_that_is_forgotten(surroundings, servers, line, rows)
        standing.runs = {part.node: (a_run_of(issued, place),) for place, part in enumerate(issued.parts)}
        standing.mute, standing.busy = {N2}, {N2}
        async with placement(surroundings):
            await told(rows, 1)
            await lift(rows)
            (released,) = await line.wait(GrantReleased)
            standing.mute = set()
            await told(rows, 2)
            asked = await asked_about(standing, issued)
            await line.say(admitted("small", 2), admitted("large", 2, after=1))
            small = (await line.wait(GrantIssued, 2))[1]
            await asked_about(standing, issued)
            first, listed = line.facts(GrantIssued), await strangers_listed(line)
            standing.busy = set()
            (*_, large) = await line.wait(GrantIssued, 3)
            left = await rows.fetchval("SELECT count(*) FROM forgotten")
    assert (released.node, released.proof) == (N1, ReleaseProof.SEAL)
    assert (asked.node, asked.epoch, asked.stop) == (N2, issued.epoch, True)
    assert asked.devices == tuple(device.device for device in issued.parts[1].devices)
    assert [(each.node, each.grant, each.epoch, each.devices, each.waits_for_person) for each in listed] == [
        (N2, issued.grant, issued.epoch, asked.devices, False)
    ]
    assert (len(first), small.parts[0].node, large.parts[0].node, left) == (2, N1, N2, 0)
    assert [fact.nodes for fact in line.facts(GrantRevoked)] == [(N1,)]  # nothing is said of the late part


async def test_r12_what_a_node_tells_of_an_earlier_epoch_of_a_grant_keeps_its_devices_until_a_seal(
    surroundings: Infrastructure, servers: Servers, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", "n2", devices=1)
    standing.mute, standing.busy = {N1}, {N1}
    async with ledger(surroundings) as rows:
        earlier, again = await a_grant_that_is_made_again(surroundings, servers, line, rows)
        standing.runs = {N1: (a_run_of(earlier),)}
        async with placement(surroundings):
            asked = await a_stranger_that_keeps_its_device(line, rows, standing, earlier, again)
            standing.busy = set()
            _, following = await line.wait(GrantIssued, 2)
    assert (again.grant, again.epoch > earlier.epoch, again.parts[0].node) == (earlier.grant, True, N2)
    assert (asked.epoch, asked.node) == (earlier.epoch, N1)
    assert (following.name, following.parts[0].node) == ("next", N1)
    assert line.facts(GrantRevoked) == []  # what runs by the later epoch goes on


async def test_r12_another_boot_of_its_node_is_proof_that_a_stranger_is_over(
    surroundings: Infrastructure, servers: Servers, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", "n2", devices=1)
    standing.mute, standing.busy = {N1}, {N1}
    async with ledger(surroundings) as rows:
        earlier, again = await a_grant_that_is_made_again(surroundings, servers, line, rows)
        standing.runs = {N1: (a_run_of(earlier),)}
        async with placement(surroundings):
            await a_stranger_that_keeps_its_device(line, rows, standing, earlier, again)
            await hello(line, "n1", boot="boot-2", incarnation="agent-2")
            _, following = await line.wait(GrantIssued, 2)
    assert (following.name, following.parts[0].node) == ("next", N1)


async def test_r12_a_start_is_not_bound_to_a_device_on_which_a_stranger_runs(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", devices=2)
    standing.busy = {N1}
    async with ledger(surroundings) as rows, placement(surroundings):
        await line.say(admitted("again"))
        (issued,) = await line.wait(GrantIssued)
        here, other = (row["device"] for row in await rows.fetch("SELECT device FROM devices ORDER BY index"))
        run = a_run_of(issued)
        slots = ({"rank": 0, "devices": ({"device": other, "index": 1, "ordinal": 2},)},)
        order = LaunchOrder.model_validate({**run.order.model_dump(), "epoch": 0, "replicas": slots})
        standing.runs = {N1: (run.model_copy(update={"order": order}),)}
        await rows.execute(STOP)
        await told(rows, 1)
        await lift(rows)
        refused = await claim(line, issued, devices=(other,))
        granted = await claim(line, issued)
    assert issued.parts[0].devices[0].device == here
    assert (refused.granted, refused.reason and refused.reason.code) == (False, Code.DEVICE_MISMATCH)
    assert granted.granted


async def test_r12_a_run_that_the_ledger_has_no_place_for_any_more_keeps_its_devices_and_stops_no_other_grant(
    surroundings: Infrastructure, servers: Servers, line: Wire, standing: Agents
) -> None:
    """Its attempt was granted again under another number while its node was silent, and has a live grant."""
    await say_fleet(line, "n1", "n2", "n3", devices=1)
    standing.mute, standing.busy = {N1}, {N1}
    async with ledger(surroundings) as rows:
        earlier, again = await a_grant_that_is_made_again(surroundings, servers, line, rows, others=2)
        second = grant_id(earlier.job, earlier.attempt, 2)
        standing.runs = {N1: (a_run_of(earlier.model_copy(update={"grant": second})),)}
        async with placement(surroundings):
            standing.mute = set()
            await told(rows, 3)
            await asked_about(standing, earlier.model_copy(update={"grant": second}))
            await line.say(admitted("next"), admitted("last", after=1))
            _, following = await line.wait(GrantIssued, 2)
            await asked_about(standing, earlier.model_copy(update={"grant": second}))
            first = line.facts(GrantIssued)
            standing.busy = set()
            *_, last = await line.wait(GrantIssued, 3)
    assert len(first) == 2
    assert {again.parts[0].node, following.parts[0].node} == {N2, node_id(CLUSTER, "n3")}
    assert (last.name, last.parts[0].node) == ("last", N1)
    assert line.facts(GrantRevoked) == []


async def test_r12_of_one_grant_under_two_epochs_the_later_is_taken_up_and_both_are_sealed(
    surroundings: Infrastructure, servers: Servers, line: Wire, standing: Agents
) -> None:
    await say_fleet(line, "n1", "n2", devices=2)
    async with ledger(surroundings) as rows:
        issued = await a_gang_that_is_forgotten(surroundings, servers, line, rows)
        later, earlier = a_run_of(issued), a_run_of(issued, 1)
        slots = [slot for replica in earlier.order.replicas for slot in replica.devices]
        moved = earlier.order.model_copy(update={"epoch": issued.epoch - 1})
        standing.runs = {N1: (later,), N2: (earlier.model_copy(update={"order": moved}),)}
        standing.busy = {N2}
        async with placement(surroundings):
            await told(rows, 2)
            await lift(rows)
            (released,) = await line.wait(GrantReleased)
            asked = await asked_about(standing, issued.model_copy(update={"epoch": issued.epoch - 1}))
            standing.busy = set()
            await line.say(admitted("large", demand=a_demand(2, replicas=2)))
            _, large = await line.wait(GrantIssued, 2)
    assert (released.node, released.epoch, released.proof) == (N1, issued.epoch, ReleaseProof.SEAL)
    assert asked.devices == tuple(slot.device for slot in slots)
    assert {part.node for part in large.parts} == {N1, N2}
