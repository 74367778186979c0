"""What an attempt is charged goes part by part, once for each, whatever comes twice or in another order."""

from itertools import permutations

from schemas.reasons import Code
from schemas.workload import JobHeld
from services.admission.core import Account
from tests.support.admissions import Desk
from tests.support.builders import (
    a_demand,
    a_grant,
    a_job_id,
    a_part,
    a_queue,
    a_submission,
    at,
    failed,
    released,
    revoked,
    succeeded,
    suspected,
)

THREE = a_demand(8, replicas=3)
GANG = a_grant("train", *(a_part(f"n{rank + 1}", 8, rank=rank) for rank in range(3)))


def test_r13_a_charge_falls_with_each_part_that_is_proved_free_and_once_whatever_comes_again() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=24), a_submission(demand=THREE))
    desk.hear(GANG)
    used = [desk.used()]
    first, second = (released(GANG, part, remaining=2 - part, alone=True) for part in (0, 1))
    for fact in (first, first, second, first, second):
        desk.hear(fact)
        used.append(desk.used())
    assert used == [24, 16, 16, 8, 8, 8]
    charge = desk.view.charges[a_job_id(), 1]
    assert (charge.over, charge.held, charge.unsettled) == (False, 8, 8)


def test_r13_a_charge_falls_part_by_part_after_an_ordinary_revocation_too_in_any_order() -> None:
    for order in permutations(range(3)):
        desk = Desk()
        desk.hear(a_queue(h100=24), a_submission(demand=THREE))
        desk.hear(GANG, revoked(GANG, Code.DRAINED), now=at(0.1))
        used = []
        for part in order:
            desk.hear(released(GANG, part, remaining=2 - part), now=at(0.1))
            used.append(desk.used())
        last = order.index(2)  # with nothing remaining, the charge is over, whatever comes after it
        assert used == [0 if place >= last else 16 - 8 * place for place in range(3)]


def test_s02_a_new_attempt_is_charged_whole_again() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=32), a_submission(demand=THREE, retries=1))
    desk.hear(GANG, *(released(GANG, part, remaining=2 - part, alone=True) for part in (0, 1)))
    assert desk.used() == 8
    desk.hear(a_submission("next", demand=a_demand(8, replicas=2)))
    assert desk.used() == 24
    assert desk.hear(failed(), revoked(GANG)) == ["evicted", "requeued"]
    desk.hear(released(GANG, 2))
    assert desk.used() == 16
    assert desk.clock(at(2)) == ["held"]
    held = desk.last(JobHeld)
    assert isinstance(held, JobHeld)
    assert held.reason.message == "queue main: quota 32 h100, used 16, asked 24"
    after = a_grant("next", *(a_part(f"n{rank + 1}", 8, rank=rank) for rank in range(2)))
    ended = desk.hear(
        after, succeeded("next"), *(released(after, part, remaining=1 - part) for part in (0, 1)), now=at(3)
    )
    assert ended == ["finished", "quota_reserved", "admitted"]
    assert desk.used() == 24


def test_r10_a_part_whose_proof_is_overdue_is_the_platforms_and_the_others_stay_the_queues() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=24), a_submission(demand=THREE))
    lost = suspected(GANG, Code.NODE_LOST).model_copy(
        update={"devices": tuple(d.device for d in GANG.parts[0].devices)}
    )
    desk.hear(GANG, lost, lost)
    charge = desk.view.charges[a_job_id(), 1]
    assert (desk.used(), charge.held, charge.account) == (16, 24, Account.QUEUE)
    desk.hear(released(GANG, 0, remaining=2, alone=True))
    assert (desk.used(), desk.view.charges[a_job_id(), 1].held) == (16, 16)
    desk.hear(revoked(GANG))
    assert desk.used() == 16


def test_a_revocation_of_what_waits_for_its_own_proof_still_does_not_end_the_charge() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=24), a_submission(demand=THREE))
    over = revoked(GANG, Code.PODS_READY_TIMEOUT, claimed=False).model_copy(update={"alone": (GANG.parts[0].node,)})
    desk.hear(GANG, over)
    assert desk.used() == 24
