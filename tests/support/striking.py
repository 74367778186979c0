"""Strikes at a stack: several at a time, each told as it falls, and all of them undone at the end."""

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import nats.errors
import psutil
from redis.exceptions import RedisError

from deploy.embedded.servers import SERVERS
from tests.support.disks import Disk
from tests.support.eventually import eventually
from tests.support.links import Links, Weather
from tests.support.strikes import ALL, Strike, Verb
from tests.support.victims import Stack

AT_ONCE = 3
BACK_SECONDS = 120  # of a busy machine
AWAY = (OSError, TimeoutError, nats.errors.Error, RedisError)


@dataclass
class Striker:
    """Strikes at one stack. ``burst`` is done when the strike of that name falls; ``say`` takes each line."""

    stack: Stack
    links: Links
    disk: Disk | None
    say: Callable[[str], None]
    burst: Callable[[], None]
    tally: Counter[str] = field(default_factory=Counter)
    _stopped: set[str] = field(default_factory=set)
    _under_way: dict["asyncio.Task[None]", Strike] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    async def strike_all(self, strikes: Iterable[Strike]) -> None:
        """Let them fall one after the other, at most three at a time and never two on the same thing; then calm."""
        try:
            for strike in strikes:
                await _pause(strike.gap)
                await eventually(partial(self._has_room_for, strike), BACK_SECONDS)
                self._tell(f"{strike}")
                self._under_way[asyncio.ensure_future(self._strike(strike))] = strike
            await eventually(lambda: not self._busy(), BACK_SECONDS)
        finally:
            await self.calm()

    async def calm(self) -> None:
        """End every fault, and wait until all servers, services and agents do their work again."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._under_way.clear()
        self.links.clear()
        for name in sorted(self._stopped):
            self._go_on(name)
        if self.disk:
            self.disk.clear()
        for name in sorted({*SERVERS, *self.stack.posts()}):
            await eventually(partial(self.stack.answers, name), BACK_SECONDS, every=0.2)
        self._tell("calm")

    def _busy(self) -> frozenset[str]:
        for task in [task for task in self._under_way if task.done()]:
            del self._under_way[task]
            task.result()
        return frozenset().union(*(strike.touches for strike in self._under_way.values()))

    def _has_room_for(self, strike: Strike) -> bool:
        return not self._busy() & strike.touches and len(self._under_way) < AT_ONCE

    async def _strike(self, strike: Strike) -> None:
        acts: dict[Verb, Callable[[Strike], Awaitable[None]]] = {
            Verb.KILL: partial(self._end, signal.SIGKILL),
            Verb.RESTART: partial(self._end, signal.SIGINT),
            Verb.STOP: self._stop,
            Verb.WEATHER: self._weather,
            Verb.FLUSH: self._flush,
            Verb.DELETE: self._delete,
            Verb.FILL: self._fill,
            Verb.BURST: self._burst,
        }
        self.tally[strike.kind] += 1
        await acts[strike.verb](strike)

    async def _flush(self, _: Strike) -> None:
        await _until_done(self.stack.flush_redis)

    async def _delete(self, strike: Strike) -> None:
        names = () if strike.victim == ALL else (strike.victim,)
        await _until_done(partial(self.stack.delete_streams, *names))

    async def _burst(self, _: Strike) -> None:
        self.burst()

    async def _end(self, number: signal.Signals, strike: Strike) -> None:
        victim = strike.victim
        before = self.stack.pids().get(victim, 0)
        if self.stack.send(victim, number):
            await eventually(lambda: self.stack.pids().get(victim, before) != before, BACK_SECONDS, every=0.1)
        if victim in SERVERS:
            await eventually(partial(self.stack.answers, victim), BACK_SECONDS, every=0.2)

    async def _stop(self, strike: Strike) -> None:
        self._stopped.add(strike.victim)
        self._signal(strike.victim, signal.SIGSTOP)
        await _pause(strike.seconds)
        self._go_on(strike.victim)

    def _go_on(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)
        self._stopped.discard(name)

    def _signal(self, name: str, number: signal.Signals) -> None:
        """Signal it and, of Postgres, every process that serves a connection."""
        pid = self.stack.pids().get(name)
        if pid is None or not self.stack.send(name, number) or name != "postgres":
            return
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(number)

    async def _weather(self, strike: Strike) -> None:
        self.links.become(strike.weather, strike.victim, strike.server)
        await _pause(strike.seconds)
        self.links.become(Weather.CLEAR, strike.victim, strike.server)

    async def _fill(self, strike: Strike) -> None:
        assert self.disk, "a scene without a disk has no such strike"
        self.disk.fill()
        await _pause(strike.seconds)
        self.disk.clear()
        for server in SERVERS:
            await eventually(partial(self.stack.answers, server), BACK_SECONDS, every=0.2)

    def _tell(self, what: str) -> None:
        self.say(f"{time.monotonic() - self._began:7.1f} s  {what}")


async def _pause(seconds: float) -> None:
    """Let a time pass that is itself part of what is tried."""
    never = asyncio.get_running_loop().create_future()
    await asyncio.wait({never}, timeout=seconds)


async def _until_done(act: Callable[[], Awaitable[float]]) -> None:
    """Do it to a server that may be away because of another strike."""

    async def done() -> bool:
        try:
            return bool(await act())
        except AWAY as error:
            raise AssertionError(repr(error)) from error

    await eventually(done, BACK_SECONDS, every=0.5)
