"""R2, R3 and G7 as values."""

from dataclasses import replace
from typing import Any

import pytest

from schemas.calls import Claim, Hello, Verdict
from schemas.ids import ClusterId, DeviceId, GrantId, NodeId
from schemas.reasons import Code, Layer, reason
from services.placement.core.claims import NodeDevice, NodeState, answer, verdicts
from services.placement.core.grant import Grant, revoke
from tests.support.builders_placement import CLUSTER, H100, START, a_device, a_grant, a_part

NODE = NodeState(
    {DeviceId(f"n1-{i}"): NodeDevice(a_device("n1", i), NodeId("n1"), H100, CLUSTER, None) for i in range(8)}, set()
)


def a_claim(grant: Grant, **changed: Any) -> Claim:
    fields: dict[str, Any] = {
        "grant": grant.id,
        "epoch": grant.epoch,
        "node": "n1",
        "cluster": CLUSTER,
        "boot": "b1",
        "instance": "i1",
        "nonce": "x",
        "devices": grant.parts[0].device_ids,
    }
    return Claim.model_validate(fields | changed)


def told(grant: Grant | None, claim: Claim, node: NodeState = NODE) -> Code | None:
    """The code of the refusal, None for yes."""
    _, said = answer(grant, claim, node, now=START)
    assert said.nonce == claim.nonce
    return said.reason.code if said.reason else None


def after(grant: Grant, claim: Claim) -> Grant:
    step, _ = answer(grant, claim, NODE, now=START)
    assert step
    return step.grant


def over(grant: Grant) -> Grant:
    return revoke(grant, reason(Layer.PLACEMENT, Code.RUN_ENDED), now=START).grant


def test_a_start_is_not_bound_to_devices_on_which_a_stranger_runs() -> None:
    grant, other = a_grant(), DeviceId("n1-7")
    held = grant.parts[0].device_ids
    moved = a_claim(grant, devices=(*held[1:], other))
    occupied = NodeState({**NODE.devices, other: replace(NODE.devices[other], occupied=True)}, set())
    assert other not in held
    assert (told(grant, moved), told(grant, moved, occupied)) == (None, Code.DEVICE_MISMATCH)


def test_an_issued_part_is_claimed_once() -> None:
    grant = a_grant()
    running = after(grant, a_claim(grant))
    assert told(running, a_claim(grant)) is None
    assert told(running, a_claim(grant, instance="i2")) is Code.ALREADY_STARTED
    assert told(running, a_claim(grant, boot="b2")) is Code.ALREADY_STARTED


@pytest.mark.parametrize("revoke_first", [True, False])
def test_no_start_passes_once_the_grant_is_over(revoke_first: bool) -> None:
    grant = a_grant()
    ended = over(grant if revoke_first else after(grant, a_claim(grant)))
    assert told(ended, a_claim(grant)) is Code.GRANT_OVER


def test_a_grant_node_or_epoch_that_the_ledger_does_not_know_starts_nothing() -> None:
    grant = a_grant()
    assert told(None, a_claim(grant)) is Code.GRANT_UNKNOWN
    assert told(grant, a_claim(grant, epoch=6)) is Code.GRANT_UNKNOWN
    assert told(grant, a_claim(grant, node="n2")) is Code.GRANT_UNKNOWN


def test_r6_claims_under_an_ended_boot_are_refused_for_ever() -> None:
    grant = a_grant()
    ended = replace(NODE, ended={"b1"})
    assert told(grant, a_claim(grant), ended) is Code.BOOT_ENDED
    assert told(after(grant, a_claim(grant)), a_claim(grant), ended) is Code.BOOT_ENDED


def test_only_the_owner_of_the_devices_starts_there() -> None:
    grant = a_grant()
    moved = {d: replace(row, owner=ClusterId("cluster_b")) for d, row in NODE.devices.items()}
    assert told(grant, a_claim(grant, cluster="cluster_b")) is Code.NOT_OWNER
    assert told(grant, a_claim(grant), replace(NODE, devices=moved)) is Code.NOT_OWNER


def test_r3_ranks_keep_their_order_on_other_devices() -> None:
    grant = a_grant(a_part(devices=2))
    rebound = after(grant, a_claim(grant, devices=("n1-7", "n1-4")))
    assert rebound.parts[0].device_ids == ("n1-4", "n1-7")


@pytest.mark.parametrize(
    "change",
    [{"grant": GrantId("grant_2")}, {"gpu_class": "a100"}, {"gpu_class": None}, {"node": NodeId("n2")}],
)
def test_r3_a_device_that_is_taken_of_another_class_or_elsewhere_is_a_mismatch(change: dict[str, Any]) -> None:
    grant = a_grant(a_part(devices=1))
    device = DeviceId("n1-5")
    node = replace(NODE, devices={**NODE.devices, device: replace(NODE.devices[device], **change)})
    assert told(grant, a_claim(grant, devices=(device,)), node) is Code.DEVICE_MISMATCH


@pytest.mark.parametrize("devices", [(), ("n1-5", "n1-6"), ("n1-9",)])
def test_r3_fewer_more_or_unknown_devices_are_a_mismatch(devices: tuple[str, ...]) -> None:
    grant = a_grant(a_part(devices=1))
    assert told(grant, a_claim(grant, devices=devices)) is Code.DEVICE_MISMATCH


def test_g7_only_a_grant_that_the_ledger_holds_as_over_is_stopped() -> None:
    live = a_grant()
    ended = replace(over(a_grant()), id=GrantId("grant_2"))
    holders = [
        {"grant": grant, "epoch": epoch, "run": "run", "instance": "i", "devices": ()}
        for grant, epoch in (("grant_1", 7), ("grant_2", 7), ("grant_3", 7), ("grant_1", 6))
    ]
    fields = {"node": "n1", "cluster": CLUSTER, "boot": "b1", "incarnation": "a", "holders": holders}
    said = verdicts(Hello.model_validate(fields), {live.id: live, ended.id: ended})
    assert [each.verdict for each in said] == [Verdict.KEEP, Verdict.STOP, Verdict.UNKNOWN, Verdict.UNKNOWN]
