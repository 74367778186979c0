"""A part that ended well while others go on: it alone is revoked, and only its own seal frees it."""

from datetime import timedelta
from typing import Any

import pytest

from schemas.calls import SealAnswer
from schemas.ids import ClusterId, NodeId, RunName
from schemas.lifecycle import PartState
from schemas.reasons import Code, Layer, reason
from schemas.runtime import ObservationNoticed, RunEvent
from schemas.workload import GrantNarrowed, GrantReleased, GrantRevoked, GrantSuspected, ReleaseProof
from services.placement.core.grant import Grant, Step, boot_ended, confirm, escalate, lose, revoke, sealed, superseded
from services.placement.core.narrow import narrow
from tests.support.builders import an_exit
from tests.support.builders_placement import START, a_grant, a_part

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
SOON, LATER = START + timedelta(seconds=60), START + timedelta(seconds=120)
OVER = reason(Layer.PLACEMENT, Code.RUN_ENDED)
LOST = reason(Layer.FLEET, Code.NODE_LOST)


def a_gang() -> Grant:
    """A gang of three nodes, all claimed."""
    grant = a_grant(a_part("n1"), a_part("n2"), a_part("n3"))
    for node in (N1, N2, N3):
        grant = claimed(grant, node)
    return grant


def claimed(grant: Grant, node: NodeId) -> Grant:
    part = grant.part(node)
    assert part
    return confirm(grant, node, instance=f"i-{node}", boot=f"b-{node}", replicas=part.replicas, now=START).grant


def an_end(grant: Grant, node: NodeId = N1, **changed: Any) -> ObservationNoticed:
    fields: dict[str, Any] = {
        "node": node,
        "cluster": ClusterId("cluster_a"),
        "boot": f"b-{node}",
        "grant": grant.id,
        "epoch": grant.epoch,
        "job": grant.job,
        "attempt": grant.attempt,
        "run": RunName("r"),
        "instance": f"i-{node}",
        "event": RunEvent.ENDED,
        "exit": an_exit(0),
        "observed_at": SOON,
    }
    return ObservationNoticed.model_validate(fields | changed)


def a_seal(grant: Grant, node: NodeId = N1, /, **changed: Any) -> SealAnswer:
    part = grant.part(node)
    assert part
    fields: dict[str, Any] = {
        "grant": grant.id,
        "epoch": grant.epoch,
        "node": node,
        "revocation": grant.revocation_of(part) or 0,
        "sealed": True,
        "boot": f"b-{node}",
        "devices": part.device_ids,
        "observed_at": SOON,
    }
    return SealAnswer.model_validate(fields | changed)


def narrowed(node: NodeId = N1) -> Grant:
    return narrow(a_gang(), an_end(a_gang(), node), now=SOON).grant


def states(grant: Grant) -> list[PartState]:
    return [part.state for part in grant.parts]


def test_r13_a_part_that_ended_well_is_revoked_alone_and_the_grant_goes_on() -> None:
    step = narrow(a_gang(), an_end(a_gang()), now=SOON)
    assert states(step.grant) == [PartState.REVOKING, PartState.CLAIMED, PartState.CLAIMED]
    assert (step.grant.revoked_at, step.grant.revocation, step.grant.live) == (None, None, True)
    (said,) = step.facts
    part = step.grant.part(N1)
    assert part is not None
    assert (said.version, part.revocation, part.narrowed_at, part.exit) == (5, 5, SOON, an_exit(0))
    assert isinstance(said.fact, GrantNarrowed)
    assert (said.fact.node, said.fact.devices, said.fact.exit) == (N1, part.device_ids, an_exit(0))


@pytest.mark.parametrize(
    "changed",
    [
        {"event": RunEvent.STARTED},
        {"exit": None},
        {"exit": an_exit(0, 1)},
        {"exit": an_exit(0, stopped=True)},
        {"epoch": 99},
        {"instance": "another"},
        {"boot": "another"},
        {"node": NodeId("n9")},
    ],
)
def test_r13_what_did_not_end_well_or_is_not_the_claimed_run_changes_nothing(changed: dict[str, Any]) -> None:
    assert narrow(a_gang(), an_end(a_gang(), **changed), now=SOON) == Step(a_gang())


def test_r13_a_notice_that_comes_twice_or_of_what_is_not_claimed_changes_nothing() -> None:
    once = narrowed()
    assert narrow(once, an_end(once), now=LATER) == Step(once)
    over = revoke(a_gang(), OVER, now=SOON).grant
    assert narrow(over, an_end(over), now=LATER) == Step(over)
    issued = a_grant(a_part("n1"), a_part("n2"))
    assert narrow(issued, an_end(issued), now=SOON) == Step(issued)


def test_r13_the_last_part_that_goes_on_ends_with_its_attempt() -> None:
    two = narrow(narrowed(), an_end(a_gang(), N2), now=SOON).grant
    assert states(two) == [PartState.REVOKING, PartState.REVOKING, PartState.CLAIMED]
    assert narrow(two, an_end(two, N3), now=LATER) == Step(two)
    one = claimed(a_grant(a_part("n1")), N1)
    assert narrow(one, an_end(one), now=SOON) == Step(one)


def test_r13_only_a_seal_of_its_own_revocation_frees_it_and_says_how_many_are_held_still() -> None:
    grant = narrowed()
    for stale in ({"revocation": 0}, {"revocation": 4}, {"sealed": False}, {"devices": ()}):
        assert sealed(grant, a_seal(grant, **stale), now=LATER) == Step(grant)
    assert sealed(grant, a_seal(grant, N2), now=LATER) == Step(grant)
    step = sealed(grant, a_seal(grant), now=LATER)
    assert states(step.grant) == [PartState.RELEASED, PartState.CLAIMED, PartState.CLAIMED]
    (said,) = step.facts
    assert isinstance(said.fact, GrantReleased)
    told = (said.fact.proof, said.fact.remaining, said.fact.alone, said.fact.lost_at, said.fact.exit)
    assert told == (ReleaseProof.SEAL, 2, True, None, an_exit(0))


def test_r13_the_revocation_of_the_grant_leaves_a_part_its_own_and_names_it() -> None:
    grant = narrowed()
    asked = a_seal(grant)
    step = revoke(grant, OVER, now=LATER)
    (said,) = step.facts
    assert isinstance(said.fact, GrantRevoked)
    assert (said.fact.nodes, said.fact.alone) == ((N2, N3), (N1,))
    parts = [step.grant.revocation_of(part) for part in step.grant.parts]
    assert parts == [5, 6, 6]
    assert states(sealed(step.grant, asked, now=LATER).grant)[0] is PartState.RELEASED


def test_r13_a_node_that_is_lost_after_its_part_ended_well_ends_nothing_else() -> None:
    grant = narrowed()
    assert lose(grant, N1, LOST, now=LATER) == Step(grant)
    assert states(lose(grant, N2, LOST, now=LATER).grant) == [PartState.REVOKING] * 3
    step = escalate(grant, N1, LOST, now=LATER)
    (said,) = step.facts
    part = grant.part(N1)
    assert part is not None
    assert isinstance(said.fact, GrantSuspected)
    assert said.fact.devices == part.device_ids
    back = sealed(step.grant, a_seal(step.grant), now=LATER).facts[0].fact
    assert isinstance(back, GrantReleased)
    assert (back.remaining, back.lost_at) == (2, LATER)


def test_r13_the_end_of_its_boot_frees_it_and_keeps_its_record_and_the_others() -> None:
    step = boot_ended(narrowed(), N1, {"b-n1"}, now=LATER)
    assert states(step.grant) == [PartState.RELEASED, PartState.CLAIMED, PartState.CLAIMED]
    (said,) = step.facts
    assert isinstance(said.fact, GrantReleased)
    assert (said.fact.proof, said.fact.exit) == (ReleaseProof.BOOT_ENDED, an_exit(0))


def test_r13_a_later_run_on_its_devices_proves_its_end_and_nothing_of_the_others() -> None:
    step = superseded(narrowed(), N1, 99, now=LATER)
    assert states(step.grant) == [PartState.RELEASED, PartState.CLAIMED, PartState.CLAIMED]
