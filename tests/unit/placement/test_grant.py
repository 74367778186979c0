"""The life of a grant, step by step: parts only go down, and only proof frees what was claimed."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Event
from schemas.calls import SealAnswer
from schemas.ids import NodeId
from schemas.lifecycle import PartState
from schemas.reasons import Code, Layer, reason
from schemas.workload import (
    GrantCleared,
    GrantConfirmed,
    GrantOverridden,
    GrantReleased,
    GrantRevoked,
    GrantSuspected,
    ReleaseProof,
)
from services.placement.core.grant import (
    Grant,
    Step,
    Word,
    boot_ended,
    confirm,
    escalate,
    heard,
    override,
    revoke,
    sealed,
    suspect,
)
from tests.support.builders_placement import START, a_grant, a_part

N1, N2 = NodeId("n1"), NodeId("n2")
LATER = START + timedelta(seconds=60)
OVER = reason(Layer.PLACEMENT, Code.RUN_ENDED)
WORD = Word("ada", "the node was scrapped")
SILENT = reason(Layer.FLEET, Code.HEARTBEAT_LOST)


def claimed(grant: Grant, node: NodeId = N1, boot: str = "b1") -> Grant:
    part = grant.part(node)
    assert part
    return confirm(grant, node, instance="i1", boot=boot, replicas=part.replicas, now=START).grant


def a_seal(grant: Grant, node: NodeId = N1, /, **changed: Any) -> SealAnswer:
    part = grant.part(node)
    assert part
    fields: dict[str, Any] = {
        "grant": grant.id,
        "epoch": grant.epoch,
        "node": node,
        "revocation": grant.revocation or 0,
        "sealed": True,
        "boot": "b1",
        "devices": part.device_ids,
        "observed_at": START,
    }
    return SealAnswer.model_validate(fields | changed)


def states(grant: Grant) -> dict[str, PartState]:
    return {part.node: part.state for part in grant.parts}


def kinds(step: Step) -> list[type[Event]]:
    return [type(said.fact) for said in step.facts]


def test_r4_a_revocation_releases_what_is_issued_and_keeps_what_is_claimed() -> None:
    step = revoke(claimed(a_grant(a_part("n1"), a_part("n2"))), OVER, now=LATER)
    assert states(step.grant) == {"n1": PartState.REVOKING, "n2": PartState.RELEASED}
    assert kinds(step) == [GrantRevoked, GrantReleased]
    assert [said.version for said in step.facts] == [3, 4]
    assert (step.grant.revocation, step.grant.revoked_at) == (3, LATER)
    released = step.facts[1].fact
    assert isinstance(released, GrantReleased)
    assert (released.node, released.proof, released.claimed, released.remaining) == (
        "n2",
        ReleaseProof.NEVER_CLAIMED,
        False,
        1,
    )


def test_r4_a_second_revocation_has_no_effect() -> None:
    once = revoke(claimed(a_grant()), OVER, now=START).grant
    assert revoke(once, OVER, now=LATER) == Step(once)


def test_r5_a_seal_counts_only_for_its_grant_epoch_revocation_and_devices() -> None:
    grant = revoke(claimed(a_grant()), OVER, now=START).grant
    for changed in ({"epoch": 6}, {"grant": "grant_2"}, {"revocation": 2}, {"sealed": False}, {"devices": ()}):
        assert sealed(grant, a_seal(grant, **changed), now=LATER) == Step(grant)
    assert states(sealed(grant, a_seal(grant), now=LATER).grant) == {"n1": PartState.RELEASED}


def test_r5_a_seal_before_the_revocation_proves_nothing() -> None:
    grant = claimed(a_grant())
    assert sealed(grant, a_seal(grant), now=LATER) == Step(grant)


def test_r6_the_end_of_a_boot_frees_what_was_claimed_under_it_and_nothing_else() -> None:
    grant = claimed(claimed(a_grant(a_part("n1"), a_part("n2"))), N2, boot="b2")
    assert boot_ended(grant, N1, {"b0"}, now=LATER) == Step(grant)
    step = boot_ended(grant, N1, {"b0", "b1"}, now=LATER)
    assert states(step.grant) == {"n1": PartState.RELEASED, "n2": PartState.REVOKING}
    assert kinds(step) == [GrantRevoked, GrantReleased]
    assert step.grant.reason is not None
    assert step.grant.reason.code is Code.BOOT_ENDED


def test_r6_what_is_not_claimed_survives_a_reboot() -> None:
    grant = a_grant()
    assert boot_ended(grant, N1, {"b1"}, now=LATER) == Step(grant)


def test_r7_a_suspect_part_is_marked_once_and_its_state_stays() -> None:
    step = suspect(claimed(a_grant()), N1, SILENT, now=LATER)
    assert (kinds(step), states(step.grant)) == ([GrantSuspected], {"n1": PartState.CLAIMED})
    assert suspect(step.grant, N1, SILENT, now=LATER) == Step(step.grant)
    again = heard(step.grant, N1, now=LATER)
    unmarked = again.grant.part(N1)
    assert unmarked is not None
    assert (unmarked.suspected_at, kinds(again)) == (None, [GrantCleared])


def test_r11_an_override_needs_a_part_that_is_revoking_and_escalated() -> None:
    grant = claimed(a_grant())
    assert override(grant, N1, WORD, now=LATER) == Step(grant)
    revoked = revoke(grant, OVER, now=START).grant
    assert override(revoked, N1, WORD, now=LATER) == Step(revoked)
    escalated = escalate(revoked, N1, SILENT, now=LATER).grant
    step = override(escalated, N1, WORD, now=LATER)
    assert states(step.grant) == {"n1": PartState.RELEASED}
    assert step.grant.parts[0].proof is ReleaseProof.OVERRIDE
    assert kinds(step) == [GrantOverridden, GrantReleased]
    assert isinstance(step.facts[0].fact, GrantOverridden)
    assert (step.facts[0].fact.person, step.facts[0].fact.reason) == WORD


RANK = {state: rank for rank, state in enumerate(PartState)}
steps = st.lists(
    st.tuples(
        st.sampled_from(["claim", "revoke", "seal", "stale seal", "boot", "override", "suspect", "escalate", "heard"]),
        st.sampled_from([N1, N2]),
        st.sampled_from(["b1", "b2"]),
    ),
    max_size=14,
)


@given(steps)
def test_whatever_happens_parts_only_go_down_and_versions_only_up(history: list[tuple[str, NodeId, str]]) -> None:
    grant = a_grant(a_part("n1"), a_part("n2"))
    proofs: set[NodeId] = set()
    facts: list[int] = [1]
    for what, node, boot in history:
        step = happens(grant, what, node, boot)
        for before, after in zip(grant.parts, step.grant.parts, strict=True):
            assert RANK[after.state] >= RANK[before.state]
            if before.live and not after.live:
                assert (after.proof is ReleaseProof.NEVER_CLAIMED) == (before.state is PartState.ISSUED)
                proofs.add(after.node)
        facts += [said.version for said in step.facts]
        grant = step.grant
    assert facts == list(range(1, grant.version + 1))
    assert proofs == {part.node for part in grant.parts if not part.live}


def happens(grant: Grant, what: str, node: NodeId, boot: str) -> Step:
    actions: dict[str, Callable[[], Step]] = {
        "claim": lambda: claimed_if_issued(grant, node, boot),
        "revoke": lambda: revoke(grant, OVER, now=LATER),
        "seal": lambda: sealed(grant, a_seal(grant, node), now=LATER),
        "stale seal": lambda: sealed(grant, a_seal(grant, node, revocation=0), now=LATER),
        "boot": lambda: boot_ended(grant, node, {boot}, now=LATER),
        "override": lambda: override(grant, node, WORD, now=LATER),
        "suspect": lambda: suspect(grant, node, SILENT, now=LATER),
        "escalate": lambda: escalate(grant, node, SILENT, now=LATER),
        "heard": lambda: heard(grant, node, now=LATER),
    }
    return actions[what]()


def claimed_if_issued(grant: Grant, node: NodeId, boot: str) -> Step:
    part = grant.part(node)
    assert part
    if part.state is not PartState.ISSUED:
        return Step(grant)
    return confirm(grant, node, instance="i", boot=boot, replicas=part.replicas, now=LATER)


def test_a_claim_says_the_devices_that_the_process_sees() -> None:
    grant = a_grant()
    part = a_part("n1", devices=2)
    step = confirm(grant, N1, instance="i1", boot="b1", replicas=part.replicas, now=LATER)
    (said,) = step.facts
    assert isinstance(said.fact, GrantConfirmed)
    assert (said.version, said.fact.devices, said.fact.claimed_at) == (2, part.device_ids, LATER)
