from libs.bus.memory import MemoryBus, MemoryServer
from libs.clock import ManualClock, SystemClock
from libs.config import Infrastructure
from libs.hearing import Hearing, is_gap
from libs.service import Service


async def test_a_service_hears_since_it_began_and_anew_after_nats_was_away() -> None:
    server, clock = MemoryServer(SystemClock()), ManualClock()
    service = Service("health", Infrastructure(), postgres=False, bus=MemoryBus(server))
    service.clock = clock
    hearing = Hearing(service, look_seconds=5.0)
    heard = [hearing.seconds()]
    await service.start()
    for up in (True, True, False, False, True, True):
        if up != server.up:
            server.set_up(up=up)
        heard.append(hearing.seconds())
        clock.advance(10)
    await service.stop()
    assert heard == [0, 0, 10, 0, 0, 0, 10]


def test_looks_that_come_late_are_no_gap_and_longer_ones_or_a_clock_put_back_are() -> None:
    seconds = (-3_600, -6, -1, 0, 5, 15, 16, 400)
    assert [each for each in seconds if is_gap(each, 5.0)] == [-3_600, -6, 16, 400]


async def test_an_absence_that_nobody_asked_about_counts_too() -> None:
    server, clock = MemoryServer(SystemClock()), ManualClock()
    service = Service("health", Infrastructure(), postgres=False, bus=MemoryBus(server))
    service.clock = clock
    hearing = Hearing(service, look_seconds=5.0)
    await service.start()
    heard = [hearing.seconds()]
    clock.advance(60)
    server.set_up(up=False)
    server.set_up(up=True)
    heard.append(hearing.seconds())
    await service.stop()
    assert heard == [0, 0]
