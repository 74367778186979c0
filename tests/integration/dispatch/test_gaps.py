"""News of runs that does not come for a while, on real servers: what became of them is asked for, and not too often."""

import asyncio
import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from schemas.base import Envelope
from schemas.ids import JobId, NodeId, RunName, run_name
from schemas.reasons import Code
from schemas.runtime import ObservationNoticed
from schemas.workload import (
    GrantIssued,
    JobEvicted,
    JobFinished,
    Outcome,
    RunAccepted,
    RunFailed,
    RunLaunched,
    RunLost,
    RunStarted,
    RunStopped,
    RunSucceeded,
)
from tests.support.builders import a_job_id, a_queue, a_submission, a_withdrawal, an_envelope, some_work
from tests.support.eventually import eventually
from tests.support.launching import DEVICES, SERVICES, Launching, Sought, launching
from tests.support.servers import Servers

RUNS, NODES = 500, 66
SUCCEEDS, VANISHES, COMES_AGAIN, URGENT = map(a_job_id, ("succeeds", "vanishes", "comes-again", "urgent"))
LOOK_SECONDS, VANISHED_SECONDS, APART_SECONDS = 5.0, 3.0, 1.0
LIST_SECONDS = 10
KINDS = RunLaunched | RunAccepted | RunStarted | RunSucceeded | RunFailed | RunStopped | RunLost
STARTED = ["RunLaunched", "RunAccepted", "RunStarted"]
Resume = Callable[[Launching, list[Envelope]], Awaitable[None]]


@pytest.fixture
async def stage(servers: Servers) -> AsyncIterator[Launching]:
    """500 runs: three of 8 devices, the others of one; the queue has no room for more."""
    waits = {"look_seconds": LOOK_SECONDS, "vanished_seconds": VANISHED_SECONDS, "apart_seconds": APART_SECONDS}
    async with launching(servers, nodes=NODES, dispatches=waits) as opened:
        await opened.start(*SERVICES)
        queue = a_queue(preempts=True, h100=RUNS - 3 + 3 * DEVICES)
        await opened.line.say(an_envelope(queue, key="queue_main"))
        await opened.say_fleet()
        await submit(opened, "succeeds", "vanishes", devices=DEVICES, priority=50)
        await submit(opened, "comes-again", devices=DEVICES, priority=10)
        await opened.line.wait(RunStarted, 3)
        await submit(opened, *(f"alone{number}" for number in range(RUNS - 3)), devices=1, priority=50)
        await opened.line.wait(RunStarted, RUNS, 300)
        yield opened


async def submit(stage: Launching, *names: str, devices: int, priority: int) -> None:
    work = some_work("sleep", "infinity", grace_seconds=1)
    wishes = [a_submission(name, devices, priority=priority, work=work) for name in names]
    await stage.line.say(*(an_envelope(wish, key=wish.job) for wish in wishes))


async def what_was_stored_is_gone(stage: Launching, lost: list[Envelope]) -> None:
    del lost
    assert await stage.line.connection.jetstream().delete_stream("RUNTIME")


async def nothing_comes(stage: Launching, lost: list[Envelope]) -> None:
    del stage, lost


async def old_news_comes_doubled_and_out_of_order(stage: Launching, lost: list[Envelope]) -> None:
    old = [each for each in stage.line.heard if isinstance(each.data, ObservationNoticed)]
    for again in (".1", ".2"):
        news = random.Random(again).sample([*old, *lost], len(old) + len(lost))
        await stage.line.say(*news, again=again)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("resume", [what_was_stored_is_gone, nothing_comes, old_news_comes_doubled_and_out_of_order])
async def test_s42_after_a_silent_gap_all_runs_are_asked_for_soon_and_seldom_and_each_change_is_said_once(
    stage: Launching, resume: Resume
) -> None:
    began, lost = now(), list[Envelope]()
    await the_gap(stage, lost)
    resumed = now()
    await resume(stage, lost)
    await eventually(lambda: (told(stage, VANISHES, 2), told(stage, COMES_AGAIN, 2)) == (STARTED, STARTED), 120)
    looks = await eventually(lambda: the_list(stage, resumed), 120)
    assert most_of_a_node(looks) <= LIST_SECONDS / APART_SECONDS + 1  # a busy machine's seconds are longer
    assert most_of_a_node(stage.agent.sought) <= (now() - began) / APART_SECONDS + 1
    assert most_in_a_second(stage.agent.sought) <= NODES
    ends = [(fact.job, fact.outcome) for fact in await stage.line.wait(JobFinished)]
    assert ends == [(SUCCEEDS, Outcome.SUCCEEDED)]
    assert [(fact.job, fact.reason.code) for fact in stage.line.facts(RunLost)] == [(VANISHES, Code.VANISHED)]
    assert told(stage, SUCCEEDS, 1) == [*STARTED, "RunSucceeded"]
    assert told(stage, VANISHES, 1) == [*STARTED, "RunLost"]
    assert told(stage, COMES_AGAIN, 1) == [*STARTED, "RunStopped"]


async def the_gap(stage: Launching, lost: list[Envelope]) -> None:
    """No node is heard for a while: a run succeeds, one ends and is forgotten, one is preempted and comes again."""
    stage.agent.finds.shut()
    stage.agent.lost = lost
    stage.agent.sought.clear()
    stage.agent.cluster.finish(node_of(stage, SUCCEEDS))
    forgetful = stage.agent.cluster.nodes[node_of(stage, VANISHES)]
    for run in forgetful.runs.values():
        run.due = math.inf
    forgetful.runs.clear()
    await submit(stage, "urgent", devices=DEVICES, priority=100)
    await stage.line.wait(JobEvicted)
    await stage.line.say(an_envelope(a_withdrawal("urgent"), key=URGENT, version=2))
    again = run_name(COMES_AGAIN, 2)
    await eventually(lambda: again in {each.data.run for each in lost if isinstance(each.data, ObservationNoticed)})
    assert told(stage, SUCCEEDS, 1) == told(stage, VANISHES, 1) == STARTED
    stage.agent.lost = None
    stage.agent.finds.open()


def now() -> float:
    return asyncio.get_running_loop().time()


def node_of(stage: Launching, job: JobId) -> NodeId:
    (grant,) = [fact for fact in stage.line.facts(GrantIssued) if fact.job == job]
    return grant.parts[0].node


def told(stage: Launching, job: JobId, attempt: int) -> list[str]:
    """Return what was said of an attempt's run, in order; what was said again under the same id counts once."""
    facts = {each.id: each.data for each in stage.line.heard if isinstance(each.data, KINDS)}.values()
    return [type(fact).__name__ for fact in facts if (fact.job, fact.attempt) == (job, attempt)]


def open_in_the_gap(stage: Launching) -> set[RunName]:
    """Return the runs that go on, and the one that its node has forgotten."""
    issued = stage.line.facts(GrantIssued)
    return {run_name(fact.job, 1) for fact in issued if fact.job not in {SUCCEEDS, COMES_AGAIN, URGENT}}


def the_list(stage: Launching, since: float) -> list[Sought]:
    """Return the questions since then by which all open runs have been asked for; none as long as some have not."""
    missing, looks = open_in_the_gap(stage), list[Sought]()
    for each in stage.agent.sought:
        if missing and each.at >= since:
            looks.append(each)
            missing -= set(each.runs)
    return [] if missing else looks


def most_of_a_node(sought: Sequence[Sought]) -> int:
    return max(Counter(each.node for each in sought).values())


def most_in_a_second(sought: Sequence[Sought]) -> int:
    """Return how many questions began together in the fullest second."""
    return max(Counter(int(each.at) for each in sought).values())
