"""The driver of nodes with an agent: calls by NATS, one a node, all nodes at once."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from libs.errors import RefusedError, TransientError
from libs.log import get_logger
from schemas.calls import Find, FindAnswer, Launch, LaunchAnswer, LaunchOrder, LaunchReply, Stop, StopAnswer
from schemas.ids import NodeId, RunName
from schemas.moves import MarkAnswer, MarkOrder, NodeLook, NodeLookAnswer

Ask = Callable[[str, BaseModel, float], Awaitable[bytes]]
"""Asks (subject, question, timeout in seconds) and returns the answer's bytes; raises TransientError, RefusedError."""

A = TypeVar("A", bound=BaseModel)
log = get_logger(__name__)


class _Agents:
    """Asks agents; what cannot be read is no answer."""

    def __init__(self, ask: Ask, *, timeout_seconds: float) -> None:
        self._ask = ask
        self._timeout = timeout_seconds

    async def _answer(self, node: NodeId, verb: str, question: BaseModel, kind: type[A]) -> A | None:
        try:
            return kind.model_validate_json(await self._ask(f"call.node.{node}.{verb}", question, self._timeout))
        except (TransientError, RefusedError) as error:
            log.info("no answer from a node", node=node, verb=verb, error=error)
        except ValidationError as error:
            log.warning("an answer that can not be read", node=node, verb=verb, faults=error.error_count())
        return None


class LocalRuns(_Agents):
    """Runs on nodes whose agent answers ``call.node.<id>.*``: real processes, and pretended ones alike.

    ``apart_seconds``: how long a node is left alone between two ``find``, whoever asks them; who comes sooner waits.
    """

    def __init__(self, ask: Ask, *, timeout_seconds: float, apart_seconds: float = 0.0) -> None:
        super().__init__(ask, timeout_seconds=timeout_seconds)
        self._apart = apart_seconds
        self._free_at: dict[NodeId, float] = {}  # by the loop's clock; of nodes that were asked a moment ago

    async def launch(self, orders: Sequence[LaunchOrder]) -> list[LaunchReply | None]:
        """Ask each node once for all its starts."""
        by_node: dict[NodeId, list[LaunchOrder]] = {}
        for order in orders:
            by_node.setdefault(order.node, []).append(order)
        asked = [self._launch(node, held) for node, held in by_node.items()]
        replies = {key: reply for answer in await asyncio.gather(*asked) for key, reply in answer.items()}
        return [replies.get((order.node, order.grant)) for order in orders]

    async def find(self, sought: Mapping[NodeId, Sequence[RunName]]) -> dict[NodeId, FindAnswer | None]:
        """Ask each node once for all its runs."""
        now = asyncio.get_running_loop().time()
        self._free_at = {node: at for node, at in self._free_at.items() if at > now}
        asked = (self._find(node, runs, now) for node, runs in sought.items())
        return dict(zip(sought, await asyncio.gather(*asked), strict=True))

    async def stop(self, orders: Sequence[tuple[NodeId, Stop]]) -> list[StopAnswer | None]:
        """Ask for each end; they are few and each must be heard."""
        asked = (self._answer(node, "stop", order, StopAnswer) for node, order in orders)
        return list(await asyncio.gather(*asked))

    async def _find(self, node: NodeId, runs: Sequence[RunName], now: float) -> FindAnswer | None:
        begin = self._free_at.get(node, now)
        self._free_at[node] = begin + self._apart
        if begin > now:
            await asyncio.sleep(begin - now)
        return await self._answer(node, "find", Find(runs=tuple(runs)), FindAnswer)

    async def _launch(self, node: NodeId, orders: Sequence[LaunchOrder]) -> dict[tuple[NodeId, str], LaunchReply]:
        answer = await self._answer(node, "launch", Launch(orders=tuple(orders)), LaunchAnswer)
        return {(node, reply.grant): reply for reply in answer.replies} if answer else {}


class LocalNodes(_Agents):
    """Marks and looks of nodes whose agent answers: it refuses launches of a destination that is to keep off."""

    async def mark(self, order: MarkOrder) -> MarkAnswer | None:
        """Ask the agent to keep a destination's launches off, or no longer to."""
        answer = await self._answer(order.node, "mark", order, MarkAnswer)
        same = answer and (answer.node, answer.cluster, answer.number) == (order.node, order.cluster, order.number)
        return answer if same else None

    async def look(self, question: NodeLook) -> NodeLookAnswer | None:
        """Ask the agent to look at all devices of its node."""
        answer = await self._answer(question.node, "look", question, NodeLookAnswer)
        return answer if answer and (answer.node, answer.session) == (question.node, question.session) else None
