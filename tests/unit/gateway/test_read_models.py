"""The read models: any order and any doubles of the same facts give the same view."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Envelope
from schemas.fleet import NodeFreshened, NodeRetired, NodeWentStale
from schemas.ids import TenantId
from schemas.lifecycle import JobState
from schemas.reasons import Code
from schemas.workload import Outcome
from services.gateway.core import fleet, job
from services.gateway.core.fleet import RELEASED_RANK, NodeView, PartView
from services.gateway.core.job import Charge, JobView, Place, Placement, Said
from tests.support.builders import (
    DEMO,
    NOON,
    a_grant,
    a_grant_id,
    a_job_id,
    a_node_id,
    a_part,
    an_exit,
    at,
    confirmed,
    failed,
    refused,
    released,
    revoked,
)
from tests.support.builders_gateway import (
    a_mark,
    a_node,
    admitted,
    changed,
    discovered,
    evicted,
    finished,
    held,
    queued,
    requeued,
    reserved,
    said,
    started,
    why,
)

JOB = a_job_id()
FIRST = a_grant("train", a_part("n1", 2), a_part("n2", 2, rank=1), attempt=1, epoch=1)
SECOND = a_grant("train", a_part("n3", 2), a_part("n4", 2, rank=1), attempt=2, epoch=2)
# one life: held, granted, drained, home, refused once, granted again, run, over
LIFE: tuple[Envelope, ...] = (
    said(queued(), key=JOB, version=1),
    said(held(), key=JOB, version=2),
    said(reserved(devices=4), key=JOB, version=3),
    said(admitted(), key=JOB, version=4),
    said(FIRST, key=FIRST.grant, version=1),
    said(confirmed(FIRST), key=FIRST.grant, version=2),
    said(revoked(FIRST, Code.DRAINED), key=FIRST.grant, version=3),
    said(evicted(), key=JOB, version=5),
    said(released(FIRST, 1, remaining=1, claimed=False), key=FIRST.grant, version=4),
    said(released(FIRST, 0), key=FIRST.grant, version=5),
    said(requeued(), key=JOB, version=6),
    said(reserved(devices=4, attempt=2), key=JOB, version=7),
    said(admitted(attempt=2), key=JOB, version=8),
    said(refused(code=Code.WAITING_FOR_CAPACITY, attempt=2, final=False), key=f"{JOB}-a2", version=1, when=at(3)),
    said(SECOND, key=SECOND.grant, version=1),
    said(started(attempt=2, when=at(10)), key=f"{JOB}-a2", version=3),
    said(failed(attempt=2), key=f"{JOB}-a2", version=4, when=at(20)),
    said(finished(outcome=Outcome.FAILED, attempt=2, exit_code=1), key=JOB, version=9, when=at(21)),
    said(revoked(SECOND), key=SECOND.grant, version=2),
    said(released(SECOND, 0, remaining=1, record=an_exit(1)), key=SECOND.grant, version=3),
    said(released(SECOND, 1), key=SECOND.grant, version=4),
)


def told(facts: Sequence[Envelope]) -> JobView:
    view = JobView(job=JOB, tenant=TenantId("acme"))
    for envelope in facts:
        view = job.evolve(view, envelope)
    return view


def shuffled(facts: Sequence[Envelope]) -> st.SearchStrategy[list[Envelope]]:
    doubles = st.lists(st.sampled_from(facts), max_size=10)
    return doubles.flatmap(lambda more: st.permutations([*facts, *more]))


def prefixes() -> st.SearchStrategy[tuple[Envelope, ...]]:
    return st.integers(1, len(LIFE)).map(lambda end: LIFE[:end])


@given(st.data())
def test_a_job_looks_the_same_in_whatever_order_and_number_its_facts_come(data: st.DataObject) -> None:
    facts = data.draw(prefixes())
    assert told(data.draw(shuffled(facts))) == told(facts)


def test_a_life_in_order_is_told_as_it_was() -> None:
    assert told(LIFE) == JobView(
        job=JOB,
        tenant=TenantId("acme"),
        state=JobState.FAILED,
        attempt=2,
        waits=Said(attempt=2, version=6, at=NOON, reason=why(Code.DRAINED)),
        refused=Said(attempt=2, version=1, at=at(3), reason=refused(code=Code.WAITING_FOR_CAPACITY).reason),
        run=Said(attempt=2, version=4, at=at(20), reason=failed().reason),
        end=Said(attempt=2, version=9, at=at(21)),
        charge=Charge(attempt=2, gpu_class="h100", devices=4),
        placement=Placement(
            attempt=2,
            epoch=2,
            grant=a_grant_id(attempt=2),
            cluster=DEMO,
            gpu_class="h100",
            world_size=2,
            places=(
                Place(node=a_node_id("n3"), node_name="n3", ranks=(0,)),
                Place(node=a_node_id("n4"), node_name="n4", ranks=(1,)),
            ),
            issued_at=NOON,
        ),
        earlier=told(LIFE[:5]).placements,
        started=Said(attempt=2, version=3, at=at(10)),
        exit_code=1,
    )


def test_an_eviction_explains_the_attempt_that_follows() -> None:
    view = told(LIFE[:8])
    assert (view.state, view.attempt, view.said) == (
        JobState.QUEUED,
        2,
        Said(attempt=2, version=5, at=NOON, reason=why(Code.DRAINED)),
    )


def test_a_refusal_of_an_old_attempt_explains_nothing() -> None:
    view = told([*LIFE[:4], said(refused(attempt=1), key=f"{JOB}-a1", version=1), *LIFE[7:13]])
    assert (view.state, view.attempt, view.said) == (JobState.ADMITTED, 2, None)


def test_where_earlier_attempts_ran_is_still_known() -> None:
    assert [each.attempt for each in told(LIFE).placements] == [2, 1]
    assert told(LIFE).earlier == (told(LIFE[:8]).placement,)


@given(st.data())
def test_parts_of_grants_end_the_same_in_whatever_order_their_facts_come(data: st.DataObject) -> None:
    facts = data.draw(prefixes())
    once = fleet.merged(part for fact in facts for part in fleet.parts_of(fact))
    again = fleet.merged(part for fact in data.draw(shuffled(facts)) for part in fleet.parts_of(fact))
    assert again == once


def test_a_released_part_stays_released_and_knows_its_devices() -> None:
    parts = fleet.merged(part for fact in LIFE for part in fleet.parts_of(fact))
    assert parts[FIRST.grant, a_node_id("n1")] == PartView(
        grant=FIRST.grant,
        node=a_node_id("n1"),
        job=JOB,
        attempt=1,
        rank=RELEASED_RANK,
        named_by=RELEASED_RANK,
        gpu_class="h100",
        devices=tuple(device.device for device in FIRST.parts[0].devices),
    )
    assert {part.rank for part in parts.values()} == {RELEASED_RANK}


def test_a_lost_node_s_part_is_charged_to_the_platform() -> None:
    lost = said(revoked(FIRST, Code.NODE_LOST), key=FIRST.grant, version=3)
    parts = fleet.merged(part for fact in (lost, LIFE[4]) for part in fleet.parts_of(fact))
    assert [part.lost for part in parts.values()] == [True, True]


NODE = a_node_id("n1")
NODE_LIFE: tuple[Envelope, ...] = (
    discovered(a_node(devices=8)),
    said(NodeWentStale(node=NODE, cluster=DEMO, last_report_at=at(30)), key=NODE, version=2, scope=DEMO),
    said(NodeFreshened(node=NODE, cluster=DEMO, reported_at=at(90)), key=NODE, version=3, scope=DEMO),
    changed(a_node(devices=7, marks=(a_mark(),)), 4),
    said(NodeWentStale(node=NODE, cluster=DEMO, last_report_at=at(200)), key=NODE, version=5, scope=DEMO),
    said(NodeRetired(node=NODE, cluster=DEMO), key=NODE, version=6, scope=DEMO),
    discovered(a_node(devices=4), 7),
)


def seen(facts: Sequence[Envelope]) -> NodeView:
    view = NodeView(node=NODE)
    for envelope in facts:
        view = fleet.evolve(view, envelope)
    return view


@given(st.data())
def test_a_node_looks_the_same_in_whatever_order_and_number_its_facts_come(data: st.DataObject) -> None:
    facts = NODE_LIFE[: data.draw(st.integers(1, len(NODE_LIFE)))]
    assert seen(data.draw(shuffled(facts))) == seen(facts)


def test_a_node_goes_silent_comes_back_retires_and_returns() -> None:
    views = [seen(NODE_LIFE[:end]) for end in range(1, len(NODE_LIFE) + 1)]
    assert [(v.stale, v.is_retired, v.devices_by_class()) for v in views] == [
        (False, False, {"h100": 8}),
        (True, False, {"h100": 8}),
        (False, False, {"h100": 8}),
        (False, False, {"h100": 7}),
        (True, False, {"h100": 7}),
        (True, True, {"h100": 7}),
        (False, False, {"h100": 4}),
    ]
    assert views[-1].seen_at == at(200)
