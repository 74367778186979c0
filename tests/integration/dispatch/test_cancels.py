"""A cancel at each step of a launch, on real servers: the job is cancelled once, and nothing of it is left anywhere."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from schemas.reasons import Code
from schemas.workload import (
    GrantConfirmed,
    GrantIssued,
    JobAdmitted,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobRequeued,
    Outcome,
    RunAccepted,
    RunLaunched,
    RunStarted,
)
from tests.support.builders import a_node_id
from tests.support.eventually import eventually
from tests.support.launching import BUILT, SERVICES, Launching, Story, launching
from tests.support.placements import refusal
from tests.support.servers import Servers

Case = Callable[[Launching], Awaitable[None]]


@pytest.fixture
async def stage(servers: Servers) -> AsyncIterator[Launching]:
    async with launching(servers) as opened:
        yield opened


async def begin(stage: Launching, *services: str, retries: int = 0) -> None:
    """Start services, and submit the job to a queue and a fleet that are there."""
    await stage.start(*services)
    await stage.say_queue()
    await stage.say_fleet()
    await stage.submit(retries=retries)


async def before_the_reserve(stage: Launching) -> None:
    await stage.start("admission")
    await stage.submit()
    await stage.line.wait(JobHeld)
    await stage.cancel()


async def after_the_reserve(stage: Launching) -> None:
    await stage.start("admission")
    await stage.say_queue()
    await stage.submit()
    await stage.line.wait(JobAdmitted)
    await stage.cancel()


async def before_the_lease(stage: Launching) -> None:
    await stage.start("admission", "placement")
    await stage.say_queue()
    await stage.submit()
    await refusal(stage.line, Code.NO_DESTINATION)
    await stage.cancel()


async def after_the_lease(stage: Launching) -> None:
    await begin(stage, "admission", "placement")
    await stage.line.wait(GrantIssued)
    assert (await stage.left()).leases == 8
    await stage.cancel()


async def before_the_submit(stage: Launching) -> None:
    await begin(stage, *BUILT)
    await stage.line.wait(RunLaunched)
    await stage.cancel()


async def after_the_submit(stage: Launching) -> None:
    """The node has the call, and is slow to carry it out."""
    stage.agent.launches.shut()
    await begin(stage, *SERVICES)
    await stage.agent.launches.arrival()
    await stage.cancel()
    assert stage.agent.node.runs == {}


async def before_the_record(stage: Launching) -> None:
    """The launch is carried out, and nobody hears of it."""
    stage.agent.node.deaf = True
    stage.agent.steps.shut()
    await begin(stage, *SERVICES)
    await eventually(lambda: stage.agent.node.runs)
    await stage.cancel()


async def after_the_record(stage: Launching) -> None:
    stage.agent.steps.shut()
    await begin(stage, *SERVICES)
    await stage.line.wait(RunAccepted)
    await stage.cancel()


async def before_the_start(stage: Launching) -> None:
    """The run has asked for its leave, and the question reaches the ledger after the cancel."""
    stage.agent.claims.shut()
    await begin(stage, *SERVICES)
    await stage.agent.claims.arrival()
    await stage.cancel()


async def after_the_start(stage: Launching) -> None:
    await begin(stage, *SERVICES)
    await stage.line.wait(RunStarted)
    await stage.cancel()


async def recovering(stage: Launching) -> None:
    """Let the first attempt run, and be ended on its node, so that a second is due; its launch will be slow."""
    await begin(stage, *SERVICES, retries=1)
    await stage.line.wait(RunStarted)
    stage.agent.launches.shut()
    stage.agent.launches.came = 0
    stage.agent.cluster.kill(a_node_id())
    await stage.line.wait(JobRequeued)


async def before_the_recovery(stage: Launching) -> None:
    """The second attempt waits for the proof that the first is over."""
    stage.agent.seals.shut()
    await recovering(stage)

    def held() -> list[tuple[int, Code]]:
        return [(fact.attempt, fact.reason.code) for fact in stage.line.facts(JobHeld)]

    await eventually(lambda: (2, Code.WAITING_FOR_RELEASE) in held())
    await stage.cancel()


async def after_the_recovery(stage: Launching) -> None:
    await recovering(stage)
    await stage.agent.launches.arrival()
    await stage.cancel()


async def twice(stage: Launching) -> None:
    """The ledger has let the run start, the run has not heard of it, and the user is impatient."""
    stage.agent.leaves.shut()
    await begin(stage, *SERVICES)
    await stage.line.wait(GrantConfirmed)
    await stage.cancel()
    await stage.withdraw()


async def from_the_back_end(stage: Launching) -> None:
    """Somebody cancels the run where it is; the job would have retries."""
    await begin(stage, *SERVICES, retries=3)
    await stage.line.wait(RunStarted)
    stage.agent.cluster.cancel(a_node_id(), "root")
    (cancelled,) = await stage.line.wait(JobCancelled)
    assert (cancelled.cancelled_by, cancelled.message) == ("backend", "cancelled on node n1 by root")
    assert cancelled.reason
    assert cancelled.reason.code is Code.BACKEND_CANCELLED


CANCELLED = (("JobCancelled", 1),)
GRANTED = Story(CANCELLED, admitted=(1,), granted=(1,))
RAN = GRANTED._replace(ran=(1,))
CASES: dict[Case, Story] = {
    before_the_reserve: Story(CANCELLED),
    after_the_reserve: Story(CANCELLED, admitted=(1,)),
    before_the_lease: Story(CANCELLED, admitted=(1,)),
    after_the_lease: GRANTED,
    before_the_submit: GRANTED,
    after_the_submit: GRANTED,
    before_the_record: GRANTED,
    after_the_record: GRANTED,
    before_the_start: GRANTED,
    after_the_start: RAN,
    before_the_recovery: Story((("JobCancelled", 2),), admitted=(1,), granted=(1,), ran=(1,)),
    after_the_recovery: Story((("JobCancelled", 2),), admitted=(1, 2), granted=(1, 2), ran=(1,)),
    twice: RAN,
    from_the_back_end: RAN,
}


@pytest.mark.parametrize(("case", "story"), [pytest.param(*each, id=each[0].__name__) for each in CASES.items()])
async def test_s38_a_cancel_at_any_step_of_a_launch_ends_the_job_once_and_leaves_nothing(
    stage: Launching, case: Case, story: Story
) -> None:
    await case(stage)
    await stage.settle()
    assert stage.story() == story


async def test_what_is_killed_where_it_runs_fails_by_its_signal_and_is_no_cancel(stage: Launching) -> None:
    await begin(stage, *SERVICES)
    await stage.line.wait(RunStarted)
    stage.agent.cluster.kill(a_node_id())
    (finished,) = await stage.line.wait(JobFinished)
    assert finished.reason
    assert (finished.outcome, finished.exit_code, finished.reason.code) == (Outcome.FAILED, 137, Code.SIGNALLED)
    await stage.settle()
    assert stage.story() == RAN._replace(ends=(("JobFinished", 1),))
