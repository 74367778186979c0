"""Moves as people see and ask for them, with what inventory says and without inventory."""

from collections.abc import Sequence

from nats.aio.msg import Msg

from schemas.base import Envelope
from schemas.calls import EscalationsPage
from schemas.fleet import ClusterDiscovered, MoveAdvanced, MoveCompleted, MoveInfo, MoveState, MoveWaited
from schemas.ids import cluster_id, move_id
from schemas.reasons import Code, Layer, reason
from tests.support.builders import DEMO, NOON, a_node_id, at
from tests.support.builders_gateway import a_node, discovered, said
from tests.support.eventually import eventually
from tests.support.gateways import Asking, gateway
from tests.support.servers import Servers

Shown = tuple[str, str, str | None, bool]
MOVE = move_id(a_node_id("n1"), 1)
BUSY = reason(Layer.NODE, Code.STILL_RUNNING, "process 4711 holds dev_1")


def an_info(state: MoveState, **more: object) -> MoveInfo:
    fields = {
        "move": MOVE,
        "node": a_node_id("n1"),
        "node_name": "n1",
        "cluster": DEMO,
        "source": DEMO,
        "source_name": "demo",
        "target": cluster_id("other"),
        "target_name": "other",
        "owner_epoch": 1,
        "state": state,
        "owner": "ada",
        "reason": "more batch work",
        "session": "order_1",
        "stop": False,
        "requested_at": NOON,
        "since": at(60),
    }
    return MoveInfo.model_validate(fields | more)


def waiting() -> Envelope:
    fact = MoveWaited(info=an_info(MoveState.MARKED, waits=BUSY, escalated=True))
    return said(fact, key=MOVE, version=4, scope=DEMO)


async def moves(asking: Asking, **query: str) -> list[Shown]:
    lines = (await asking.admin.get("/v1/moves", params=query)).json()
    return [(line["id"], line["state"], line["code"], line["escalated"]) for line in lines]


async def test_moves_are_listed_by_their_newest_word_in_whatever_order_it_comes(servers: Servers) -> None:
    async with gateway(servers) as asking:
        early = said(MoveAdvanced(info=an_info(MoveState.HELD)), key=MOVE, version=2, scope=DEMO)
        await asking.line.say(waiting(), early)
        expected = [(MOVE, "Marked", "StillRunning", True)]
        await eventually(lambda: _lists(asking, expected))
        assert await moves(asking, node="n1") == await moves(asking, node=a_node_id("n1")) == expected
        assert await moves(asking, node="n2") == []
        (line,) = (await asking.admin.get("/v1/moves")).json()
        assert line["told"] == "waits until the node is seen to be clear: process 4711 holds dev_1"
        over = MoveCompleted(info=an_info(MoveState.COMPLETED))
        await asking.line.say(said(over, key=MOVE, version=6, scope=DEMO))
        await eventually(lambda: _lists(asking, []))
        assert await moves(asking, all="true") == [(MOVE, "Completed", None, False)]


async def _lists(asking: Asking, expected: Sequence[Shown]) -> bool:
    return await moves(asking) == list(expected)


async def test_a_move_that_has_waited_too_long_is_among_the_escalations_with_its_commands(servers: Servers) -> None:
    async def nothing(message: Msg) -> None:
        await message.respond(EscalationsPage(now=at(360), items=()).model_dump_json().encode())

    async with gateway(servers) as asking:
        await asking.line.connection.subscribe("call.grant.escalations", cb=nothing)
        await asking.admin.post("/v1/tenants", json={"name": "acme"})
        await asking.line.say(waiting())
        await eventually(lambda: _lists(asking, [(MOVE, "Marked", "StillRunning", True)]))
        (line,) = (await asking.admin.get("/v1/escalations")).json()
        assert (line["subject"], line["state"], line["code"], line["age_seconds"]) == (
            "move",
            "Reserved",
            "StillRunning",
            300,
        )
        assert line["commands"] == [
            "# on n1: end what runs there, or start the agent",
            f"triplane moves cancel {MOVE} --reason 'why'",
        ]
        async with asking.by(await asking.token("submitter", "acme")) as ada:
            assert (await ada.get("/v1/escalations")).json() == []


async def test_what_cannot_be_asked_for_is_told_with_what_mends_it(servers: Servers) -> None:
    wish = {"to": "other", "reason": "more batch work"}
    async with gateway(servers, call_seconds=0.2) as asking:
        await asking.admin.post("/v1/tenants", json={"name": "acme"})
        clusters = [
            said(
                ClusterDiscovered(cluster=cluster_id(name), name=name, backend="local", levels=()),
                key=cluster_id(name),
                version=1,
                scope=cluster_id(name),
            )
            for name in ("demo", "other")
        ]
        await asking.line.say(*clusters, discovered(a_node("n1")))
        await eventually(lambda: _answers(asking, "n1", wish, 503))
        unknown = await asking.admin.post("/v1/nodes/n9/moves", json=wish)
        assert (unknown.status_code, unknown.json()["detail"]) == (404, "there is no node n9")
        nowhere = await asking.admin.post("/v1/nodes/n1/moves", json={**wish, "to": "nowhere"})
        problem = nowhere.json()
        assert (nowhere.status_code, problem["field"], problem["remedy"]) == (404, "to", "there are: demo, other")
        assert (await asking.admin.post("/v1/nodes/n1/moves", json={**wish, "reason": ""})).status_code == 422
        async with asking.by(await asking.token("operator", "acme")) as operator:
            assert (await operator.post("/v1/nodes/n1/moves", json=wish)).status_code == 403
            assert (await operator.post(f"/v1/moves/{MOVE}/cancel", json={"reason": "no"})).status_code == 403


async def _answers(asking: Asking, node: str, wish: dict[str, str], status: int) -> bool:
    return (await asking.admin.post(f"/v1/nodes/{node}/moves", json=wish)).status_code == status
