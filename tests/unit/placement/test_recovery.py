"""R12 as values: what is told is put together by grant and epoch, and a stranger is over by its own seal alone."""

from typing import Any

import pytest

from schemas.calls import LaunchOrder, Seal, SealAnswer
from schemas.ids import ClusterId, DeviceId, GrantId, NodeId, job_id, run_name
from schemas.workload import ReplicaSlot
from services.placement.core.recovery import NO_REVOCATION, Forgotten, by_grant, proved_over, seal_of
from tests.support.builders import ACME, some_work
from tests.support.builders_placement import START, a_device

JOB = job_id(ACME, "train", 1)
DEVICES = (DeviceId("n1-0"), DeviceId("n1-1"))


def a_run(grant: str = "g1", *, epoch: int = 5, node: str = "n1") -> Forgotten:
    order = LaunchOrder(
        run=run_name(JOB, 1),
        grant=GrantId(grant),
        epoch=epoch,
        job=JOB,
        attempt=1,
        tenant=ACME,
        name="train",
        queue="main",
        node=NodeId(node),
        replicas=(ReplicaSlot(rank=0, devices=(a_device(node, 0), a_device(node, 1))),),
        world_size=1,
        master_addr=node,
        master_port=20_000,
        work=some_work(grace_seconds=7),
        start_deadline=START,
    )
    return Forgotten(NodeId(node), node, ClusterId("c1"), "b1", "i1", order)


def an_answer(**changed: Any) -> SealAnswer:
    fields: dict[str, Any] = {
        "grant": "g1",
        "epoch": 5,
        "node": "n1",
        "revocation": NO_REVOCATION,
        "sealed": True,
        "boot": "b1",
        "devices": DEVICES,
        "observed_at": START,
    }
    return SealAnswer.model_validate(fields | changed)


def test_parts_are_put_together_by_grant_and_epoch_the_last_epoch_first() -> None:
    old, new, elsewhere, other = a_run(), a_run(epoch=9), a_run(epoch=9, node="n2"), a_run("g0", epoch=2)
    assert by_grant([old, new, elsewhere, other]) == [[other], [new, elsewhere], [old]]


def test_a_stranger_is_asked_for_under_its_own_epoch_and_told_to_stop() -> None:
    assert seal_of(a_run()) == Seal(
        run=run_name(JOB, 1),
        grant=GrantId("g1"),
        epoch=5,
        node=NodeId("n1"),
        devices=DEVICES,
        revocation=NO_REVOCATION,
        stop=True,
        grace_seconds=7,
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"sealed": False},
        {"grant": "g2"},
        {"epoch": 9},
        {"node": "n2"},
        {"revocation": 3},
        {"devices": DEVICES[:1]},
    ],
)
def test_a_stranger_is_over_by_its_own_whole_seal_alone(changed: dict[str, Any]) -> None:
    assert proved_over(a_run(), an_answer())
    assert not proved_over(a_run(), an_answer(**changed))
