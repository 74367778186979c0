"""The driver of nodes with an agent: who is asked how often."""

import asyncio

from pydantic import BaseModel

from libs.errors import UnavailableError
from libs.orchestrators.local import LocalRuns
from schemas.calls import Find, FindAnswer
from schemas.ids import NodeId, RunName

N1, N2 = NodeId("node_1"), NodeId("node_2")
RUNS = [RunName("job_1-a1")]
APART_SECONDS = 0.2


class Nodes:
    """Answers as agents would, but for ``silent`` ones. ``asked``: whom, and when by the loop's clock."""

    def __init__(self, *silent: NodeId) -> None:
        self.silent, self.asked = silent, list[tuple[str, float]]()

    async def ask(self, subject: str, question: BaseModel, timeout: float) -> bytes:
        assert (isinstance(question, Find), timeout) == (True, 1)
        node = subject.split(".")[2]
        self.asked.append((node, asyncio.get_running_loop().time()))
        if node in self.silent:
            raise UnavailableError("nobody answers")
        return FindAnswer(ready=True, boot="boot-1", runs=()).model_dump_json().encode()


async def test_whoever_asks_a_node_again_too_soon_waits_and_nobody_waits_for_another_node() -> None:
    nodes = Nodes(N2)
    runs = LocalRuns(nodes.ask, timeout_seconds=1, apart_seconds=APART_SECONDS)
    begin = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(runs.find({N1: RUNS, N2: RUNS}) for _ in range(3)))
    assert [(each[N1] is not None, each[N2]) for each in answers] == [(True, None)] * 3
    for node in (N1, N2):
        waits = [at - begin for asked, at in nodes.asked if asked == node]
        assert [int(wait / APART_SECONDS) for wait in waits] == [0, 1, 2]
