"""The relay notices that a stream went back, and says again what was beyond."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from libs.bus.memory import MemoryBus, MemoryServer
from libs.bus.memory_store import MemoryStore
from libs.bus.relay import Relay
from libs.clock import ManualClock
from schemas import codec
from tests.support.builders import a_submission
from tests.support.eventually import eventually
from tests.support.shell_services import SCOPE, SUBMITTED, submitted


class Scene:
    """A store and a server that share a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = MemoryServer(self.clock)
        self.store = MemoryStore("gateway", self.clock)
        self.bus = MemoryBus(self.server)
        self.server.buses.append(self.bus)

    async def commit(self, *names: str) -> None:
        async with self.store.turn() as turn:
            for name in names:
                turn.emit(a_submission(name), scope=SCOPE, key=name, version=1)

    def stored(self) -> list[str]:
        messages = self.server.streams["WORKLOAD"].messages
        return [codec.decode(messages[sequence].body).key for sequence in sorted(messages)]

    async def stores(self, *names: str) -> None:
        await eventually(lambda: self.stored() == list(names))

    @asynccontextmanager
    async def relaying(self) -> AsyncIterator[Relay]:
        await self.bus.connect()
        relay = Relay(self.store, self.bus, ["WORKLOAD"])
        task = asyncio.ensure_future(relay.run())
        yield relay
        relay.end()
        await task


class Follower(MemoryStore):
    """A store whose outbox another replica has."""

    asked = 0

    @asynccontextmanager
    async def outbox(self) -> AsyncIterator[MemoryStore | None]:
        self.asked += 1
        yield None


def cut(server: MemoryServer, beyond: int) -> None:
    """Let a power cut take what the stream had not yet written to its disk."""
    stream = server.streams["WORKLOAD"]
    stream.messages = {sequence: each for sequence, each in stream.messages.items() if sequence <= beyond}
    stream.identities = {name: known for name, known in stream.identities.items() if known[0] <= beyond}
    stream.last_sequence = beyond


async def test_what_a_power_cut_took_is_said_again_in_order() -> None:
    scene = Scene()
    async with scene.relaying() as relay:
        await scene.commit("a", "b", "c", "d")
        await scene.stores("a", "b", "c", "d")
        cut(scene.server, beyond=1)
        relay.look()
        await scene.stores("a", "b", "c", "d")


async def test_a_power_cut_is_noticed_by_the_next_receipt_alone() -> None:
    scene = Scene()
    async with scene.relaying():
        await scene.commit("a", "b", "c", "d")
        await scene.stores("a", "b", "c", "d")
        cut(scene.server, beyond=1)
        await scene.commit("e")
        await scene.stores("a", "e", "b", "c", "d")


async def test_a_power_cut_that_others_have_written_over_is_noticed_when_the_server_is_back() -> None:
    scene = Scene()
    async with scene.relaying():
        await scene.commit("a", "b", "c", "d")
        await scene.stores("a", "b", "c", "d")
        scene.server.set_up(up=False)
        cut(scene.server, beyond=1)
        for name in "vwxyz":
            scene.server.store_raw("WORKLOAD", f"{SUBMITTED}.acme", codec.encode(submitted(name)), {}, f"{name}.1")
        scene.server.set_up(up=True)
        await scene.stores("a", "v", "w", "x", "y", "z", "b", "c", "d")


async def test_a_server_that_comes_back_with_all_it_had_gets_nothing_twice() -> None:
    scene = Scene()
    async with scene.relaying():
        await scene.commit("a", "b")
        await scene.stores("a", "b")
        scene.server.set_up(up=False)
        scene.server.set_up(up=True)
        await scene.commit("c")
        await scene.stores("a", "b", "c")
    assert {row.item.said for row in scene.store.tables.rows.values()} == {1}


async def test_a_loss_that_happened_while_the_relay_was_away_is_noticed_at_its_start() -> None:
    scene = Scene()
    async with scene.relaying():
        await scene.commit("a", "b")
        await scene.stores("a", "b")
    scene.server.delete_stream("WORKLOAD")
    async with scene.relaying():
        await scene.stores("a", "b")


async def test_what_is_older_than_its_stream_keeps_is_not_said_again() -> None:
    scene = Scene()
    async with scene.relaying():
        await scene.commit("old")
        await scene.stores("old")
        scene.clock.advance(7 * 86_400)
        await scene.commit("new")
        await scene.stores("old", "new")
    scene.server.delete_stream("WORKLOAD")
    async with scene.relaying():
        await scene.stores("new")


async def test_a_fact_that_is_asked_for_while_it_is_on_its_way_is_said_once_more() -> None:
    scene = Scene()
    async with scene.relaying() as relay:
        await scene.commit("a")
        await scene.stores("a")
        scene.clock.advance(6)
        async with scene.store.turn() as turn:
            assert await turn.say_again([row.item.message.id for row in scene.store.tables.rows.values()]) == 1
        await scene.stores("a", "a")
        relay.look()
    assert scene.stored() == ["a", "a"]


async def test_what_was_just_said_is_not_said_again_yet() -> None:
    scene = Scene()
    async with scene.relaying():
        await scene.commit("a")
        await scene.stores("a")
        async with scene.store.turn() as turn:
            assert await turn.say_again([row.item.message.id for row in scene.store.tables.rows.values()]) == 0
    assert scene.stored() == ["a"]


async def test_who_has_not_the_outbox_asks_for_it_seldom_whatever_it_commits() -> None:
    scene = Scene()
    scene.store = follower = Follower("gateway", scene.clock)
    async with scene.relaying():
        for number in range(100):
            await scene.commit(f"job-{number}")
            await asyncio.sleep(0)
        assert follower.asked == 1
