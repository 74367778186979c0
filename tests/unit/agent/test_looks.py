import asyncio
import threading

from services.agent.handlers.looks import Shared
from tests.support.eventually import eventually


class Window:
    """A look that takes until it is let through; the n-th sees n."""

    def __init__(self) -> None:
        self.begun = 0
        self.through = threading.Semaphore(0)

    def look(self) -> int:
        self.begun += 1
        seen = self.begun
        self.through.acquire(timeout=30)
        return seen


async def test_who_asks_while_a_look_is_on_its_way_gets_one_that_begins_afterwards() -> None:
    window = Window()
    shared = Shared(window.look, "window")
    first = asyncio.ensure_future(shared.fresh())
    await eventually(lambda: window.begun == 1)
    later = [asyncio.ensure_future(shared.fresh()) for _ in range(50)]
    await asyncio.sleep(0)
    window.through.release(2)
    assert (await first, await asyncio.gather(*later)) == (1, [2] * 50)


async def test_who_asks_together_shares_one_look() -> None:
    window = Window()
    shared = Shared(window.look, "window")
    window.through.release()
    assert await asyncio.gather(*(shared.fresh() for _ in range(50))) == [1] * 50


async def test_who_goes_away_takes_the_look_from_nobody() -> None:
    window = Window()
    shared = Shared(window.look, "window")
    gone, waiting = asyncio.ensure_future(shared.fresh()), asyncio.ensure_future(shared.fresh())
    await eventually(lambda: window.begun == 1)
    gone.cancel()
    window.through.release()
    assert await waiting == 1
