"""A part of a gang that ended well gives its devices back alone, on real servers."""

import pytest

from libs.config import Infrastructure
from schemas.base import Envelope
from schemas.ids import run_name
from schemas.reasons import Code
from schemas.runtime import ObservationNoticed, RunEvent
from schemas.workload import GrantIssued, GrantNarrowed, GrantReleased, GrantRevoked, ReleaseProof
from tests.support.builders import NOON, a_demand, an_envelope, an_exit
from tests.support.eventually import eventually
from tests.support.placements import (
    CLUSTER,
    Agents,
    admitted,
    cancelled,
    claim,
    ledger,
    placement,
    say_fleet,
)
from tests.support.wire import Wire

KNOWN = "SELECT count(*) FROM devices"
LIVE = "SELECT count(*) FROM lines WHERE live"


def an_end(grant: GrantIssued, part: int = 0, *codes: int, version: int = 7) -> Envelope:
    """Say that what was claimed on a part's node has ended."""
    fact = ObservationNoticed(
        node=grant.parts[part].node,
        cluster=CLUSTER,
        boot="boot-1",
        grant=grant.grant,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        run=run_name(grant.job, grant.attempt),
        instance="instance-1",
        event=RunEvent.ENDED,
        exit=an_exit(*codes, instance="instance-1"),
        observed_at=NOON,
    )
    return an_envelope(fact, key=fact.node, version=version, scope=CLUSTER)


async def a_gang(surroundings: Infrastructure, line: Wire, *, parts: int = 3) -> GrantIssued:
    """Issue a gang of so many nodes, once these are known, and claim every part."""
    await say_fleet(line, *(f"n{number}" for number in range(1, parts + 1)))
    async with ledger(surroundings) as rows:

        async def known() -> bool:
            return bool(await rows.fetchval(KNOWN) == 8 * parts)

        await eventually(known)
    await line.say(admitted("train", demand=a_demand(8, replicas=parts)))
    (issued,) = await line.wait(GrantIssued)
    for part in range(parts):
        assert (await claim(line, issued, part)).granted
    return issued


async def test_r13_a_part_that_ended_well_is_free_by_its_seal_and_others_get_its_devices(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    async with placement(surroundings), ledger(surroundings) as rows:
        gang = await a_gang(surroundings, line)
        standing.busy = {gang.parts[0].node}
        await line.say(an_end(gang), an_end(gang))
        (narrowed,) = await line.wait(GrantNarrowed)
        await eventually(lambda: standing.asked)
        assert (narrowed.node, await rows.fetchval(LIVE), line.facts(GrantReleased)) == (gang.parts[0].node, 24, [])
        assert not (await claim(line, gang, 0)).granted
        standing.busy = set()
        (released,) = await line.wait(GrantReleased)
        told = (released.node, released.proof, released.remaining, released.alone, len(released.devices))
        assert told == (gang.parts[0].node, ReleaseProof.SEAL, 2, True, 8)
        await line.say(admitted("next", 8, after=1))
        _, other = await line.wait(GrantIssued, 2)
        assert [part.node for part in other.parts] == [gang.parts[0].node]
        await line.say(an_end(gang, version=8))
        await line.say(cancelled("train"))
        assert len(await line.wait(GrantReleased, 3)) == 3
    (revoked,) = line.facts(GrantRevoked)
    assert (revoked.nodes, revoked.alone) == (tuple(part.node for part in gang.parts[1:]), ())
    assert {seal.revocation for seal in standing.asked if seal.node == gang.parts[0].node} == {5}


@pytest.mark.parametrize("codes", [(1,), (0, 1)])
async def test_r13_a_part_that_failed_and_the_last_one_end_with_their_attempt(
    surroundings: Infrastructure, line: Wire, standing: Agents, codes: tuple[int, ...]
) -> None:
    async with placement(surroundings), ledger(surroundings) as rows:
        gang = await a_gang(surroundings, line, parts=2)
        await line.say(an_end(gang, 1, *codes))
        await line.say(an_end(gang, 0))
        await line.wait(GrantReleased)
        assert [fact.node for fact in line.facts(GrantNarrowed)] == [gang.parts[0].node]
        await line.say(an_end(gang, 1, version=8))
        await line.say(cancelled("train"))
        await line.wait(GrantReleased, 2)
        assert await rows.fetchval(LIVE) == 0
    assert [fact.node for fact in line.facts(GrantNarrowed)] == [gang.parts[0].node]
    assert standing.asked


async def test_r13_a_revocation_that_comes_while_a_part_waits_alone_names_it_and_takes_its_proof(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    async with placement(surroundings):
        gang = await a_gang(surroundings, line, parts=2)
        standing.busy = {part.node for part in gang.parts}
        await line.say(an_end(gang))
        await line.wait(GrantNarrowed)
        await line.say(cancelled("train"))
        (revoked,) = await line.wait(GrantRevoked)
        assert (revoked.reason.code, revoked.nodes, revoked.alone) == (
            Code.CANCELLED,
            (gang.parts[1].node,),
            (gang.parts[0].node,),
        )
        standing.busy = set()
        found = await line.wait(GrantReleased, 2)
    assert sorted((fact.node, fact.alone) for fact in found) == sorted(
        [(gang.parts[0].node, True), (gang.parts[1].node, False)]
    )


async def test_r13_a_crash_between_the_word_and_the_proof_costs_nothing(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    async with placement(surroundings):
        gang = await a_gang(surroundings, line, parts=2)
        standing.busy = {gang.parts[0].node}
        await line.say(an_end(gang))
        await line.wait(GrantNarrowed)
    standing.busy = set()
    async with placement(surroundings):
        (released,) = await line.wait(GrantReleased)
    assert (released.remaining, released.alone) == (1, True)
    assert line.facts(GrantRevoked) == []
