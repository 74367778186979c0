from schemas.ids import ClusterId, NodeId, cluster_id, node_id
from schemas.moves import MarkOrder, NodeLook
from schemas.reasons import Code
from schemas.runtime import RunEvent
from services.agent.core.runs import devices_of
from tests.support.backends import DEVICES, Backend

OTHER = cluster_id("other")


def home(backend: Backend) -> tuple[ClusterId, NodeId]:
    cluster = cluster_id(backend.cluster)
    return cluster, node_id(cluster, "n1")


def an_order(backend: Backend, number: int, *, off: bool, cluster: ClusterId | None = None) -> MarkOrder:
    own, node = home(backend)
    return MarkOrder(node=node, cluster=cluster or own, off=off, number=number, owner="ada", session=f"move_{number}")


async def test_a_destination_that_is_marked_off_starts_nothing_and_every_other_does(backend: Backend) -> None:
    acknowledged = await backend.nodes.mark(an_order(backend, 2, off=True))
    assert acknowledged
    assert (acknowledged.acknowledged, acknowledged.number, acknowledged.reason) == (True, 2, None)
    own, others = backend.order(), backend.order(job="job_b").model_copy(update={"cluster": OTHER})
    refused, accepted = await backend.runs.launch([own, others])
    assert refused
    assert accepted
    assert (refused.accepted, refused.reason and refused.reason.code) == (False, Code.NOT_OWNER)
    assert accepted.accepted
    await backend.noticed(others, RunEvent.ENDED)
    assert [claim.cluster for claim in backend.book.claims] == [OTHER]


async def test_marks_come_twice_and_late_and_the_newest_stands_and_is_not_denied(
    backend: Backend,
) -> None:
    orders = [an_order(backend, 4, off=True), an_order(backend, 5, off=False)]
    answers = [await backend.nodes.mark(order) for order in [*orders, orders[1], orders[0]]]
    assert [answer.acknowledged for answer in answers if answer] == [True, True, True, False]
    (reply,) = await backend.runs.launch([backend.order()])
    assert reply
    assert reply.accepted


async def test_a_mark_for_another_node_s_agent_has_no_acknowledgement(backend: Backend) -> None:
    order = an_order(backend, 2, off=True).model_copy(update={"node": node_id(OTHER, "n1")})
    assert await backend.nodes.mark(order) is None


async def test_a_node_is_looked_at_whole_and_what_runs_there_is_evidence(backend: Backend) -> None:
    _, node = home(backend)
    clear = await backend.nodes.look(NodeLook(node=node, session="move_1"))
    assert clear
    assert (clear.clear, clear.reason, len(clear.devices)) == (True, None, DEVICES)
    order = backend.order(seconds=60)
    await backend.runs.launch([order])
    await backend.noticed(order, RunEvent.STARTED)
    busy = await backend.nodes.look(NodeLook(node=node, session="move_1"))
    assert busy
    assert busy.reason
    assert (busy.clear, busy.reason.code, set(devices_of(order)) <= set(busy.devices)) == (
        False,
        Code.STILL_RUNNING,
        True,
    )
    await backend.seal(order, stop=True)
    await backend.noticed(order, RunEvent.ENDED)
