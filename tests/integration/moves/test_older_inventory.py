"""Nodes bear the marks of a time that inventory has forgotten: it was restored from an older backup."""

from deploy.embedded.backup import MARKS_ANEW
from schemas.fleet import MoveState
from schemas.ids import ClusterId
from schemas.moves import MarkOrder
from schemas.reasons import Code
from tests.support.eventually import eventually
from tests.support.moving import DEMO, N1, OTHER, Moving

S = MoveState


def bear(stage: Moving, cluster: ClusterId, number: int, *, off: bool) -> None:
    """Let the node have taken an order that inventory does not know of any more."""
    stage.node.marks[cluster] = MarkOrder(
        node=N1, cluster=cluster, off=off, number=number, owner="ada", session="forgotten"
    )


async def restore(stage: Moving) -> None:
    """Do with inventory what a restore does with it besides."""
    await stage.stop("inventory")
    connection = await stage.servers.foundation.postgres.connect()
    try:
        await connection.execute(MARKS_ANEW)
    finally:
        await connection.close()
    await stage.start("inventory")


async def test_after_a_restore_a_node_is_told_again_whose_it_is_and_moves_as_before(stage: Moving) -> None:
    bear(stage, DEMO, 8, off=True)  # it was moved to other since the backup
    bear(stage, OTHER, 9, off=False)
    await restore(stage)
    await eventually(lambda: not stage.node.marks[DEMO].off)
    assert stage.node.marks[OTHER].off
    await eventually(lambda: _none_due(stage))
    await stage.moved()
    assert stage.owners() == [(OTHER, 2)]
    assert (stage.node.marks[DEMO].off, stage.node.marks[OTHER].off) == (True, False)


async def test_a_move_whose_mark_a_restore_has_made_doubtful_asks_for_it_again(stage: Moving) -> None:
    move = await stage.stuck(S.MARKED)
    bear(stage, DEMO, 9, off=False)  # the move was made, and back, since the backup
    await restore(stage)
    await eventually(lambda: stage.node.marks[DEMO].off)
    await stage.free()
    await stage.until(lambda info: info.state is S.COMPLETED, move)
    assert stage.node.marks[DEMO].off


async def test_an_order_that_a_newer_one_contradicts_is_not_acknowledged_and_moves_nothing(stage: Moving) -> None:
    bear(stage, DEMO, 9, off=False)
    asked = await stage.move()
    assert asked.move
    await stage.at(asked.move, S.HELD, Code.MARK_REFUSED)
    assert stage.owners() == []
    await restore(stage)
    await stage.until(lambda info: info.state is S.COMPLETED, asked.move)


async def _none_due(stage: Moving) -> bool:
    return await stage.rows("inventory", "SELECT node FROM nodes WHERE marks_due_at IS NOT NULL") == []
