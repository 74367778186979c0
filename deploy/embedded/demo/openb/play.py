"""Playing the trace: declare tenants and queues, hand the jobs in when their time comes, watch until all have ended."""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from deploy.embedded.demo.openb import record
from deploy.embedded.demo.openb.documents import Play, Wish
from deploy.embedded.demo.openb.record import Moment
from deploy.embedded.failures import StackError
from deploy.embedded.gateway import declare
from deploy.embedded.servers.roles import Connection
from libs.client import calls
from libs.client.client import AsyncClient

FLEET_SECONDS = 120.0  # until all nodes have reported, on a busy machine
STILL_SECONDS = 120.0  # without any progress: it is not going to end
LOOK_SECONDS = 0.5
SAY_SECONDS = 10.0  # between two lines
PUSH_SECONDS = 0.25  # between two batches
BATCH = 400  # documents at once: the gateway takes up to a thousand, and up to 1 MiB

Say = Callable[[str], None]
Pusher: TypeAlias = "asyncio.Task[tuple[float, float]]"


@dataclass(frozen=True, slots=True)
class Played:
    """When the play began (seconds since 1970), how long it took, and by how much the pusher was ever late."""

    began: float
    seconds: float
    pushed: float
    late: float
    peak_rate: float  # jobs that ended a second, in the best ten seconds


async def open_fleet(admin: AsyncClient, ledger: Connection, play: Play, nodes: int) -> None:
    """Declare tenants and queues and wait until placement offers every node. Raises StackError."""
    for tenant in play.tenants:
        await admin.ask(calls.create_tenant(tenant))
    await declare(admin, play.queues)
    deadline = time.monotonic() + FLEET_SECONDS
    while (ready := await record.nodes_ready(ledger)) < nodes:
        if time.monotonic() > deadline:
            raise StackError(f"{ready} of {nodes} nodes were ready within {FLEET_SECONDS:.0f} s.")
        await asyncio.sleep(LOOK_SECONDS)


async def perform(admin: AsyncClient, ledger: Connection, play: Play, say: Say) -> Played:
    """Hand in all wishes and return when every job has ended, or when nothing moves any more."""
    began, start = time.time(), time.monotonic()
    pusher = asyncio.create_task(_push(admin, play.wishes, start))
    try:
        rate = await _watch(ledger, play, start, pusher, say)
        pushed, late = await pusher
    finally:
        pusher.cancel()
    return Played(began, time.monotonic() - start, pushed, late, rate)


async def _push(admin: AsyncClient, wishes: Sequence[Wish], start: float) -> tuple[float, float]:
    """Return when the last was taken, and by how much a wish was ever handed in late. Raises StackError."""
    left, late = deque(wishes), 0.0
    while left:
        now = time.monotonic() - start
        due = [left.popleft() for _ in range(min(BATCH, len(left))) if left[0].at <= now]
        if due:
            await declare(admin, "\n---\n".join(json.dumps(wish.document) for wish in due))
            late = max(late, time.monotonic() - start - due[0].at)
        if not (left and left[0].at <= time.monotonic() - start):
            await asyncio.sleep(PUSH_SECONDS)
    return time.monotonic() - start, late


async def _watch(ledger: Connection, play: Play, start: float, pusher: Pusher, say: Say) -> float:
    """Say a line now and then; return the best rate of ends over ten seconds."""
    jobs, devices = len(play.wishes), sum(play.stock.values())
    said, moved, last, rate = -SAY_SECONDS, 0.0, None, 0.0
    ends: deque[tuple[float, int]] = deque()
    while True:
        seen, now = await record.moment(ledger), time.monotonic() - start
        rate = max(rate, _rate(ends, now, seen.ended))
        if seen != last or not pusher.done():
            last, moved = seen, now
        over = seen.ended >= jobs and seen.devices == 0
        if now - said >= SAY_SECONDS or over:
            said = now
            say(_line(now, seen, jobs, devices))
        if over or now - moved > STILL_SECONDS or (pusher.done() and pusher.exception()):
            return rate
        await asyncio.sleep(LOOK_SECONDS)


def _rate(ends: deque[tuple[float, int]], now: float, ended: int) -> float:
    ends.append((now, ended))
    while now - ends[0][0] > 10.0:
        ends.popleft()
    first, count = ends[0]
    return (ended - count) / (now - first) if now - first > 5.0 else 0.0


def _line(now: float, seen: Moment, jobs: int, devices: int) -> str:
    return (
        f"{now:6.1f} s  allocated {seen.devices / devices:6.2%} ({seen.devices} of {devices})  "
        f"{seen.known} of {jobs} came, {seen.waiting} queued, {seen.running} running, {seen.ended} ended"
    )
