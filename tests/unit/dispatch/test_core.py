"""How a run goes: each state said once, one result, whatever order the news comes in."""

from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import Event, fact_name
from schemas.lifecycle import RunState
from schemas.reasons import Code, Layer, reason
from schemas.runtime import ObservationNoticed, RunEvent
from schemas.workload import ExitRecord, GrantIssued, RankExit, RunFailed, RunLost, RunStopped
from services.dispatch.core import PartState, Run, Sighting, View, decide, evolve, is_news, plan
from services.dispatch.core.view import SightingKind
from tests.support.builders import (
    DEMO,
    NOON,
    a_grant,
    a_part,
    an_exit,
    at,
    confirmed,
    released,
    revoked,
)

ONE = a_grant("train", a_part("n1"))
TWO = a_grant("train", a_part("n1"), a_part("n2", rank=1))


@dataclass
class Desk:
    """Dispatch in memory."""

    grant: GrantIssued
    view: View = field(default_factory=View)
    said: list[Event] = field(default_factory=list)

    def hear(self, *facts: Event | Sighting, now: datetime = NOON) -> list[str]:
        start = len(self.said)
        for fact in facts:
            self.view = evolve(self.view, fact, now=now)
            self.settle(now)
        return [fact_name(type(fact)).removeprefix("workload.run.") for fact in self.said[start:]]

    def settle(self, now: datetime) -> None:
        for fact in tuple(decide(self.run, now=now, vanished_seconds=60)):
            self.said.append(fact)
            self.view = evolve(self.view, fact, now=now)

    @property
    def run(self) -> Run:
        return self.view.runs[self.grant.grant]


def sighting(
    grant: GrantIssued, kind: SightingKind, part: int = 0, record: ExitRecord | None = None, instance: str | None = None
) -> Sighting:
    why = reason(Layer.NODE, Code.LAUNCH_REFUSED, "no room") if kind is SightingKind.REFUSED else None
    run = evolve(View(), grant, now=NOON).runs[grant.grant]
    return Sighting(run.name, grant.grant, grant.parts[part].node, kind, exit=record, reason=why, instance=instance)


def noticed(
    grant: GrantIssued, event: RunEvent, part: int = 0, *, record: ExitRecord | None = None, instance: str = "boot-1/1"
) -> ObservationNoticed:
    run = evolve(View(), grant, now=NOON).runs[grant.grant]
    return ObservationNoticed(
        node=grant.parts[part].node,
        cluster=DEMO,
        boot="boot-1",
        grant=grant.grant,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        run=run.name,
        instance=instance,
        event=event,
        exit=record,
        observed_at=NOON,
    )


def started(grant: GrantIssued, part: int = 0) -> ObservationNoticed:
    return noticed(grant, RunEvent.STARTED, part)


def ended(grant: GrantIssued, part: int = 0, *codes: int) -> ObservationNoticed:
    return noticed(grant, RunEvent.ENDED, part, record=an_exit(*codes))


def test_a_run_goes_from_launched_to_succeeded_and_each_state_is_said_once() -> None:
    desk = Desk(ONE)
    assert desk.hear(ONE) == ["launched"]
    assert desk.hear(sighting(ONE, SightingKind.ACCEPTED)) == ["accepted"]
    assert desk.hear(confirmed(ONE), started(ONE)) == ["started"]
    assert desk.hear(ended(ONE)) == ["succeeded"]
    assert desk.hear(ONE, started(ONE), ended(ONE), sighting(ONE, SightingKind.ACCEPTED)) == []
    assert desk.hear(revoked(ONE), released(ONE)) == []
    assert desk.run.settled


def test_a_gang_has_started_and_succeeded_when_every_part_has() -> None:
    desk = Desk(TWO)
    desk.hear(TWO, sighting(TWO, SightingKind.ACCEPTED))
    assert desk.hear(sighting(TWO, SightingKind.ACCEPTED, 1)) == ["accepted"]
    assert desk.hear(started(TWO)) == []
    assert desk.hear(started(TWO, 1)) == ["started"]
    assert desk.hear(ended(TWO)) == []
    assert desk.hear(ended(TWO, 1)) == ["succeeded"]


def test_the_first_part_that_fails_fails_the_run_with_its_code() -> None:
    desk = Desk(TWO)
    desk.hear(TWO, started(TWO), started(TWO, 1))
    assert desk.hear(ended(TWO, 1, 7)) == ["failed"]
    failed = desk.said[-1]
    assert isinstance(failed, RunFailed)
    assert (failed.exit_code, failed.reason.code) == (7, Code.NON_ZERO_EXIT_CODE)
    assert failed.reason.numbers == {"rank": 0, "exit_code": 7}
    assert desk.hear(ended(TWO, 0, 0)) == []


def test_a_part_that_gave_its_devices_back_alone_has_started_and_ended_well_and_answers_no_result() -> None:
    desk = Desk(TWO)
    record = an_exit(0)
    early = released(TWO, 0, remaining=1, record=record, alone=True)
    assert desk.hear(TWO, ended(TWO, 0), early) == ["launched"]
    assert not desk.run.answered
    assert desk.hear(sighting(TWO, SightingKind.ACCEPTED, 1), started(TWO, 1)) == ["accepted", "started"]
    assert desk.hear(ended(TWO, 1)) == ["succeeded"]
    assert not desk.run.answered
    desk.hear(revoked(TWO), released(TWO, 1))
    assert (desk.run.answered, desk.run.settled) == (True, True)


def test_a_signalled_process_fails_the_run_with_the_code_that_a_shell_gives_it() -> None:
    desk = Desk(ONE)
    killed = an_exit().model_copy(update={"ranks": (RankExit(rank=0, exit_code=None, signal=9),)})
    assert desk.hear(ONE, noticed(ONE, RunEvent.ENDED, record=killed))[-1] == "failed"
    failed = desk.said[-1]
    assert isinstance(failed, RunFailed)
    assert (failed.exit_code, failed.reason.code, failed.reason.numbers) == (
        137,
        Code.SIGNALLED,
        {"rank": 0, "signal": 9},
    )


def test_how_a_process_ended_becomes_a_code() -> None:
    cases = {
        Code.DEADLINE_EXCEEDED: an_exit(143, timed_out=True),
        Code.STOPPED: an_exit(143, stopped=True),
        Code.BACKEND_CANCELLED: an_exit(143, stopped=True, cancelled_by="root"),
        Code.RESULT_UNKNOWN: an_exit().model_copy(update={"ranks": ()}),
        Code.DEVICE_NOT_CLEAR: an_exit().model_copy(
            update={"ranks": (), "refused": reason(Layer.NODE, Code.DEVICE_NOT_CLEAR)}
        ),
    }
    for code, record in cases.items():
        desk = Desk(ONE)
        desk.hear(ONE, noticed(ONE, RunEvent.ENDED, record=record))
        failed = desk.said[-1]
        assert isinstance(failed, RunFailed)
        assert failed.reason.code is code


def test_a_run_that_was_cancelled_where_it_ran_says_who_and_one_that_we_stopped_does_not_ask() -> None:
    cancelled = noticed(ONE, RunEvent.ENDED, record=an_exit(143, stopped=True, cancelled_by="root"))
    desk = Desk(ONE)
    assert desk.hear(ONE, started(ONE), cancelled)[-1] == "failed"
    failed = desk.said[-1]
    assert isinstance(failed, RunFailed)
    assert (failed.exit_code, failed.reason) == (
        None,
        reason(Layer.NODE, Code.BACKEND_CANCELLED, "cancelled on node n1 by root"),
    )
    ours = Desk(ONE)
    assert ours.hear(ONE, started(ONE), revoked(ONE, Code.DRAINED), cancelled)[-1] == "stopped"


def test_a_second_start_that_was_refused_is_evidence_and_no_result() -> None:
    desk = Desk(ONE)
    desk.hear(ONE, confirmed(ONE), started(ONE))
    late = an_exit().model_copy(update={"ranks": (), "refused": reason(Layer.PLACEMENT, Code.ALREADY_STARTED)})
    assert desk.hear(noticed(ONE, RunEvent.ENDED, record=late, instance="boot-1/2")) == []
    stranger = noticed(ONE, RunEvent.ENDED, record=an_exit(1, instance="boot-1/3"), instance="boot-1/3")
    assert desk.hear(stranger) == []
    assert desk.run.state is RunState.STARTED


def test_a_refused_launch_fails_the_run_and_an_unreachable_node_is_asked_before_it_is_told_again() -> None:
    desk = Desk(ONE)
    desk.hear(ONE)
    assert [len(x) for x in parts(desk, NOON)] == [1, 0, 0]
    assert desk.hear(sighting(ONE, SightingKind.UNREACHABLE)) == []
    assert [len(x) for x in parts(desk, NOON)] == [0, 0, 0]
    assert [len(x) for x in parts(desk, at(-10))] == [0, 0, 0]
    assert [len(x) for x in parts(desk, at(-3_600))] == [0, 1, 0], "the clock was put back: nobody waits an hour"
    assert [len(x) for x in parts(desk, at(1))] == [0, 1, 0]
    assert desk.hear(sighting(ONE, SightingKind.ABSENT)) == []
    assert [len(x) for x in parts(desk, at(1))] == [1, 0, 0]
    assert desk.hear(sighting(ONE, SightingKind.REFUSED)) == ["failed"]


def parts(desk: Desk, now: datetime) -> tuple[tuple[object, ...], ...]:
    chosen = plan(desk.view.runs.values(), now=now)
    return chosen.launch, chosen.find, chosen.stop


def test_a_revoked_run_is_never_launched_and_what_may_live_is_stopped_again_and_again() -> None:
    unborn = Desk(ONE)
    unborn.hear(ONE)
    assert unborn.hear(revoked(ONE, Code.ATTEMPT_OVER)) == ["stopped"]
    assert plan(unborn.view.runs.values(), now=at(60)).empty
    desk = Desk(ONE)
    desk.hear(ONE, started(ONE))
    assert desk.hear(revoked(ONE, Code.DRAINED)) == []
    assert [len(x) for x in parts(desk, NOON)] == [0, 0, 1]
    desk.hear(sighting(ONE, SightingKind.STOPPING))
    assert [len(x) for x in parts(desk, at(9))] == [0, 0, 0]
    assert [len(x) for x in parts(desk, at(10))] == [0, 0, 1]
    assert desk.hear(noticed(ONE, RunEvent.ENDED, record=an_exit(143, stopped=True))) == ["stopped"]
    stopped = desk.said[-1]
    assert isinstance(stopped, RunStopped)
    assert stopped.reason.code is Code.DRAINED


def test_a_seals_record_settles_a_run_whose_notice_was_lost() -> None:
    desk = Desk(ONE)
    desk.hear(ONE, started(ONE))
    assert desk.hear(released(ONE, record=an_exit(0))) == ["succeeded"]


def test_devices_back_without_a_record_mean_an_unknown_result() -> None:
    desk = Desk(ONE)
    desk.hear(ONE, started(ONE))
    assert desk.hear(released(ONE)) == ["lost"]
    lost = desk.said[-1]
    assert isinstance(lost, RunLost)
    assert lost.reason.code is Code.RESULT_UNKNOWN


def test_an_end_without_a_record_means_an_unknown_result() -> None:
    desk = Desk(ONE)
    desk.hear(ONE, started(ONE))
    assert desk.hear(noticed(ONE, RunEvent.ENDED)) == ["lost"]
    lost = desk.said[-1]
    assert isinstance(lost, RunLost)
    assert lost.reason.code is Code.RESULT_UNKNOWN


def test_a_lost_node_makes_the_result_unknown_at_once() -> None:
    desk = Desk(ONE)
    desk.hear(ONE, started(ONE))
    assert desk.hear(revoked(ONE, Code.NODE_LOST)) == ["lost"]


def test_s41_one_not_found_is_nothing_and_two_sixty_seconds_apart_make_the_result_unknown() -> None:
    desk = Desk(ONE)
    desk.hear(ONE, started(ONE))
    assert desk.hear(sighting(ONE, SightingKind.ABSENT), now=at(0)) == []
    assert desk.hear(sighting(ONE, SightingKind.ABSENT), now=at(59)) == []
    assert desk.hear(sighting(ONE, SightingKind.STARTED), now=at(59)) == []
    assert desk.hear(sighting(ONE, SightingKind.ABSENT), now=at(60)) == []
    assert desk.hear(sighting(ONE, SightingKind.ABSENT), now=at(120)) == ["lost"]
    lost = desk.said[-1]
    assert isinstance(lost, RunLost)
    assert lost.reason.code is Code.VANISHED


def test_a_node_that_has_only_a_second_start_which_was_refused_does_not_have_the_run() -> None:
    desk = Desk(ONE)
    late = an_exit().model_copy(update={"ranks": (), "refused": reason(Layer.PLACEMENT, Code.ALREADY_STARTED)})
    desk.hear(ONE, sighting(ONE, SightingKind.UNREACHABLE))
    assert desk.hear(sighting(ONE, SightingKind.ENDED, record=late), now=at(0)) == ["accepted"]
    assert desk.hear(sighting(ONE, SightingKind.ENDED, record=late), now=at(60)) == ["lost"]


def test_a_node_that_has_only_another_instance_which_is_over_does_not_have_the_run() -> None:
    desk = Desk(ONE)
    mute = an_exit().model_copy(update={"ranks": (), "refused": reason(Layer.NODE, Code.AGENT_UNREACHABLE)})
    other = sighting(ONE, SightingKind.ENDED, record=mute, instance="boot-1/2")
    assert desk.hear(ONE, confirmed(ONE), started(ONE)) == ["launched", "accepted", "started"]
    assert desk.hear(other, now=at(0)) == []
    assert desk.hear(other, now=at(60)) == ["lost"]


def test_time_alone_is_no_second_answer() -> None:
    desk = Desk(ONE)
    desk.hear(ONE, started(ONE), sighting(ONE, SightingKind.ABSENT), now=at(0))
    assert desk.hear(confirmed(ONE), now=at(600)) == []
    assert desk.hear(sighting(ONE, SightingKind.ABSENT), now=at(601)) == ["lost"]


RESUMED = 360.0


def test_s42_a_node_that_is_silent_for_six_minutes_is_asked_less_and_less_whoever_waits_for_it() -> None:
    waiting = [Desk(a_grant(f"waits-{number}", a_part("n1"))) for number in range(200)]
    rounds: list[float] = []
    for seconds in (half / 2 for half in range(720)):
        for desk in waiting[: int(2 * seconds) + 1]:  # one more comes every half second
            desk.hear(desk.grant, now=at(seconds))
            launches, finds, _ = parts(desk, at(seconds))
            desk.hear(*[sighting(desk.grant, SightingKind.UNREACHABLE)] * len([*launches, *finds]), now=at(seconds))
            rounds.extend([seconds] if finds else [])
    calls = sorted(set(rounds))
    assert {after - before for before, after in pairwise(calls) if before > 130} == {8.0}
    assert all(parts(desk, at(RESUMED + 8))[1] for desk in waiting)


def test_s42_what_a_gap_hid_is_said_once_by_the_list_whatever_old_news_comes_with_it() -> None:
    for news in permutations([started(ONE), started(ONE), ended(ONE), ended(ONE)]):
        desk = Desk(ONE)
        desk.hear(ONE, confirmed(ONE), started(ONE))
        answer = sighting(ONE, SightingKind.ENDED, record=an_exit(), instance="boot-1/1")
        assert desk.hear(*news[:2], answer, *news[2:], now=at(RESUMED + 10)) == ["succeeded"]
        gone = Desk(ONE)
        gone.hear(ONE, confirmed(ONE), started(ONE))
        assert gone.hear(sighting(ONE, SightingKind.ABSENT), now=at(RESUMED + 10)) == []
        assert gone.hear(sighting(ONE, SightingKind.ABSENT), now=at(RESUMED + 70)) == ["lost"]
        assert gone.hear(*news, now=at(RESUMED + 71)) == []


def test_an_answer_that_changes_nothing_is_no_news() -> None:
    desk = Desk(ONE)
    desk.hear(ONE, confirmed(ONE), started(ONE))
    same = sighting(ONE, SightingKind.STARTED, instance="boot-1/1")
    silent, absent = (sighting(ONE, kind) for kind in (SightingKind.UNREACHABLE, SightingKind.ABSENT))
    assert [is_news(desk.run, each, now=NOON) for each in (same, silent, absent)] == [False, False, True]
    desk.hear(absent)
    assert is_news(desk.run, same, now=NOON)
    desk.hear(revoked(ONE, Code.DRAINED))
    assert is_news(desk.run, silent, now=NOON)


NEWS: list[Event | Sighting] = [
    TWO,
    confirmed(TWO),
    confirmed(TWO, 1),
    started(TWO),
    started(TWO, 1),
    ended(TWO),
    ended(TWO, 1),
    sighting(TWO, SightingKind.ACCEPTED),
    sighting(TWO, SightingKind.ACCEPTED, 1),
    sighting(TWO, SightingKind.UNREACHABLE),
    revoked(TWO, Code.RUN_ENDED),
    released(TWO),
    released(TWO, 1),
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(NEWS), max_size=30))
def test_in_any_order_there_is_one_result_and_the_parts_only_go_on(news: list[Event | Sighting]) -> None:
    desk = Desk(TWO)
    desk.hear(TWO)
    progress = {state: rank for rank, state in enumerate(PartState)}
    for fact in news:
        before = desk.run
        desk.hear(fact)
        pairs = zip(before.parts, desk.run.parts, strict=True)
        assert all(progress[new.state] >= progress[old.state] or old.state is PartState.UNKNOWN for old, new in pairs)
    names = [fact_name(type(fact)).rpartition(".")[2] for fact in desk.said]
    assert len(names) == len(set(names))
    assert len({"succeeded", "failed", "stopped", "lost"} & set(names)) <= 1
