"""Services and agents beside the servers."""

import asyncio
from pathlib import Path

import pytest

from deploy.embedded import crew
from deploy.embedded.failures import StackError
from deploy.embedded.posts import Post
from deploy.embedded.servers import SERVERS
from deploy.embedded.state import open_state
from libs.config import Infrastructure
from libs.probes import Probes
from tests.support.eventually import eventually
from tests.support.stacks import components, crash, embedded, is_running, stack_pid

FLEET = Path(__file__).parents[3] / "deploy/embedded/demo/fleet.yaml"
AGENTS = {f"agent-demo-n{number}" for number in range(1, 5)}


class ToySeat:
    """A service that answers /readyz and dies when told."""

    def __init__(self, name: str, port: int, order: list[str]) -> None:
        self.post = Post(name, name.partition("-")[0], Infrastructure(health_port=port))
        self.lives = 0
        self.die = asyncio.Event()
        self._order = order

    async def work(self) -> str:
        self.lives += 1
        self.die.clear()
        probes = Probes(list)
        await probes.open("127.0.0.1", self.post.port)
        try:
            await self.die.wait()
        except asyncio.CancelledError:
            self._order.append(self.post.name)
            raise
        finally:
            await probes.close()
        return "told to die"


async def test_a_service_that_dies_is_rebuilt(state: Path, free_ports: list[int]) -> None:
    seat = ToySeat("billing", free_ports[0], [])
    async with crew.at_work([seat], open_state(state)):
        seat.die.set()
        assert await eventually(lambda: seat.lives == 2)


async def test_the_gateway_leaves_first_and_agents_last(state: Path, free_ports: list[int]) -> None:
    order: list[str] = []
    names = ["agent-demo-n1", "billing", "gateway", "placement"]
    seats = [ToySeat(name, port, order) for name, port in zip(names, free_ports, strict=False)]
    async with crew.at_work(seats, open_state(state)):
        pass
    assert order == ["gateway", "billing", "placement", "agent-demo-n1"]


async def test_who_is_never_ready_is_named_with_the_end_of_its_log(state: Path, free_ports: list[int]) -> None:
    folder = open_state(state)
    folder.log_file("billing").write_text("no prices\n")
    seat = ToySeat("billing", free_ports[0], [])
    seat.post = Post("billing", "billing", Infrastructure(health_port=free_ports[1]))
    with pytest.raises(StackError) as caught:
        async with crew.at_work([NeverReady(seat.post)], folder, ready_seconds=0.2):
            pass
    assert str(caught.value) == "Not ready within 0.2 s. The ends of their logs:\nbilling: no prices"


async def test_a_setting_that_is_out_of_bounds_is_named_at_once(state: Path) -> None:
    wrong = {"TRIPLANE_ADMISSION_BACKOFF_SECONDS": "-1"}
    outcome = await embedded("up", "--state", state, environment=wrong)
    assert outcome.code == 1
    assert "admission cannot be built: 1 validation error for Settings\nbackoff_seconds" in outcome.said


class NeverReady:
    """A service that hangs at its start."""

    def __init__(self, post: Post) -> None:
        self.post = post

    async def work(self) -> str:
        await asyncio.Event().wait()
        return ""


async def test_a_whole_stack_comes_up_in_one_process_and_goes_down(state: Path) -> None:
    outcome = await embedded("up", "--detach", "--fleet", FLEET, "--state", state)
    assert outcome.code == 0, outcome.said
    seen = await components(state)
    assert (all_ready(seen), set(seen) >= AGENTS, len(pids(seen))) == (True, True, 1)
    assert (await embedded("down", "--state", state)).said == "Stopped: stack.\n"
    assert {each["state"] for each in (await components(state)).values()} == {"down"}


async def test_of_many_processes_a_killed_one_comes_back_and_a_killed_stack_leaves_none_behind(state: Path) -> None:
    outcome = await embedded("up", "--detach", "--processes", "--fleet", FLEET, "--state", state)
    assert outcome.code == 0, outcome.said
    seen = await components(state)
    assert (all_ready(seen), set(seen) >= AGENTS, len(pids(seen))) == (True, True, len(seen) - len(SERVERS))
    before = seen["admission"]
    crash(int(str(before["pid"])))

    async def is_back() -> bool:
        now = (await components(state))["admission"]
        return now["state"] == "ready" and now["pid"] != before["pid"]

    assert await eventually(is_back, seconds=30)
    left = [int(str(each["pid"])) for each in (await components(state)).values()]
    crash(stack_pid(state))
    assert (await embedded("down", "--state", state)).code == 0
    assert [pid for pid in left if is_running(pid)] == []


def all_ready(seen: dict[str, dict[str, object]]) -> bool:
    return {each["state"] for each in seen.values()} == {"ready"}


def pids(seen: dict[str, dict[str, object]]) -> set[str]:
    return {str(each["pid"]) for name, each in seen.items() if name not in SERVERS}
