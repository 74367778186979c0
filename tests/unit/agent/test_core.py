import itertools
from datetime import UTC, datetime, timedelta

import pytest

from schemas.calls import FoundState
from schemas.reasons import Code
from schemas.workload import ExitRecord
from services.agent.core.orders import MARK, Owner, Place, shim_order
from services.agent.core.proofs import Look, not_clear_for_start, not_sealed
from services.agent.core.runs import Evidence, Instance, RunState, devices_of, found, holder, state_of
from tests.support.builders_agent import an_order, declared

NOW = datetime(2026, 3, 1, tzinfo=UTC)
RECORD = ExitRecord(instance="start-1", ranks=(), ended_at=NOW)
INSTANCE = Instance(pid=7, start=1, boot="boot-1", id="start-1")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PLACE = Place(
    boot="boot-1",
    mark="5f0c/grant_1",
    device_folder="/run/triplane/devices",
    agent_socket="/run/triplane/agent.sock",
    scratch="/run/triplane/scratch/job_a-a1-e1",
    cgroup=None,
    owner=Owner(65_534, 65_534, "nobody"),
    visible={device: f"GPU-{index}" for index, device in enumerate(declared(8))},
    lock_wait_seconds=10.0,
    log_bytes=1_024,
    traceparent=TRACEPARENT,
)


def evidence(*, alive: bool = False, started: bool = False, ended: bool = False) -> Evidence:
    return Evidence(an_order("true"), INSTANCE, alive, started, RECORD if ended else None)


@pytest.mark.parametrize(
    ("alive", "started", "ended", "state"),
    [
        (False, False, False, RunState.UNSTARTED),
        (True, False, False, RunState.WAITING),
        (True, True, False, RunState.RUNNING),
        (False, True, False, RunState.BROKEN),
        *((alive, started, True, RunState.ENDED) for alive, started in itertools.product((True, False), repeat=2)),
    ],
)
def test_where_a_run_is_follows_from_its_folder_and_its_shim(
    alive: bool, started: bool, ended: bool, state: RunState
) -> None:
    assert state_of(evidence(alive=alive, started=started, ended=ended)) is state


def test_what_never_began_is_not_found_and_a_broken_run_has_ended_without_a_record() -> None:
    assert found(evidence()) is None
    broken = found(evidence(started=True))
    assert broken
    assert (broken.state, broken.exit, broken.instance) == (FoundState.ENDED, None, "start-1")
    ended = found(evidence(started=True, ended=True))
    assert ended
    assert (ended.state, ended.exit) == (FoundState.ENDED, RECORD)


def test_a_holder_names_its_devices_in_the_order_of_the_locks() -> None:
    order = an_order("true", devices=2, replicas=2)
    held = holder(Evidence(order, None, True, False, None))
    assert (held.devices, held.instance) == (tuple(sorted(declared(4))), "")
    assert devices_of(order) == held.devices


CLEAR, BUSY, UNKNOWN = Look(), Look(busy=("process 7",)), Look(unknown=("the driver hangs",))


@pytest.mark.parametrize("looks", list(itertools.product((CLEAR, BUSY, UNKNOWN), repeat=3)))
def test_every_proof_must_be_clear_and_unknown_is_never_clear(looks: tuple[Look, ...]) -> None:
    clear = set(looks) == {CLEAR}
    assert (not_clear_for_start(looks) is None, not_sealed(looks) is None) == (clear, clear)
    why = not_sealed(looks)
    assert why is None or why.code is (Code.STILL_RUNNING if BUSY in looks else Code.UNKNOWN)


def test_a_reason_says_who_is_there_and_what_could_not_be_seen() -> None:
    why = not_clear_for_start([BUSY, UNKNOWN])
    assert why
    assert (why.code, why.message) == (Code.DEVICE_NOT_CLEAR, "process 7; unknown: the driver hangs")
    assert why.numbers == {"busy": 1, "unknown": 1}


def test_the_user_sets_the_environment_but_not_what_the_platform_says() -> None:
    forged = {"TRIPLANE_GRANT": "forged", "RANK": "9", MARK: "forged"}
    order = an_order("train", env={"PATH": "/opt/bin", "EPOCHS": "3"} | forged)
    told = shim_order(order, PLACE, now=NOW)
    (replica,) = told["replicas"]
    env = told["env"] | replica["env"]
    assert (env["PATH"], env["EPOCHS"], env["TRIPLANE_GRANT"], env["RANK"]) == ("/opt/bin", "3", order.grant, "0")
    assert (env["TRACEPARENT"], env[MARK]) == (TRACEPARENT, PLACE.mark)
    assert (env["HOME"], env["USER"], env["CUDA_VISIBLE_DEVICES"]) == (PLACE.scratch, "nobody", "GPU-0")


@pytest.mark.parametrize(("ahead", "seconds"), [(-3_600, 10.0), (60, 60.0), (86_400, 3_600.0)])
def test_a_skewed_clock_neither_ends_a_start_at_once_nor_keeps_it_for_ever(ahead: int, seconds: float) -> None:
    order = an_order("train").model_copy(update={"start_deadline": NOW + timedelta(seconds=ahead)})
    assert shim_order(order, PLACE, now=NOW)["start_seconds"] == seconds
