"""The client of the leases: the gate in front of the ledger, at the speed of Redis.

No lease, present or missing, proves anything. Every call may raise UnavailableError; its caller goes on without.
"""

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from typing import Any, Final, TypeVar

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from libs.errors import UnavailableError, says_cut
from libs.leases.lease import Lease, key_of, parse
from libs.leases.line import Line

KEYS_A_SCRIPT: Final = 512  # Redis serves nobody else while a script runs: about a millisecond of it
SCRIPTS_A_PIPELINE: Final = 64
PENDING_MILLISECONDS: Final = 5_000  # a replica killed between gate and commit blocks its devices no longer
LEASE_MILLISECONDS: Final = 30_000  # three renewals
SOCKET_SECONDS: Final = 1.0
LOADS: Final = 3  # of one script for one question

_T = TypeVar("_T")
_Call = tuple[Sequence[str], Sequence[str]]  # keys, arguments


@dataclass(frozen=True, slots=True)
class Raised:
    """What raising met: devices whose key was missing, and leases that stand higher and were left alone.

    A higher lease is another, later grant's; above the ledger's highest epoch it says that the ledger went back.
    """

    missing: tuple[str, ...] = ()
    higher: tuple[Lease, ...] = ()


class Leases:
    """The leases of all devices in one Redis or Valkey. Its clock alone decides what expires."""

    def __init__(
        self,
        url: str,
        *,
        pending_milliseconds: int = PENDING_MILLISECONDS,
        lease_milliseconds: int = LEASE_MILLISECONDS,
        socket_seconds: float = SOCKET_SECONDS,
    ) -> None:
        # one retry: it reconnects after an idle connection was cut, and every script may run twice
        self._redis = Redis.from_url(
            url,
            decode_responses=True,
            socket_timeout=socket_seconds,
            socket_connect_timeout=socket_seconds,
            retry=Retry(NoBackoff(), 1),
        )
        self._line = Line(self._redis)
        self._pending = str(pending_milliseconds)
        self._full = str(lease_milliseconds)
        self._loaded: dict[str, str] = {}

    async def acquire_many(self, gangs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """Take the devices of each gang (grant -> devices) as pending: all of a gang or none.

        Returns for each gang the devices that another holds; an empty tuple means that the gang holds all of its own.
        """
        chunks = {grant: list(_batched(sorted(devices), KEYS_A_SCRIPT)) for grant, devices in gangs.items()}
        taken: dict[str, tuple[str, ...]] = dict.fromkeys(gangs, ())
        depth = max((len(parts) for parts in chunks.values()), default=0)
        for level in range(depth):  # nearly always one; in key order, so that two huge gangs meet at the first
            asked = [
                (grant, parts[level]) for grant, parts in chunks.items() if level < len(parts) and not taken[grant]
            ]
            for grant, device in await self._acquire(asked):
                taken[grant] += (device,)
        await self._undo_partial(chunks, taken)
        return taken

    async def raise_many(self, leases: Sequence[Lease]) -> Raised:
        """Raise each key to its grant and epoch with the full ttl. A key only rises in epoch; a higher one stays."""
        parts = list(_batched(leases, KEYS_A_SCRIPT))
        calls = [([lease.key for lease in part], [self._full, *(lease.value for lease in part)]) for part in parts]
        missing: list[str] = []
        higher: list[Lease] = []
        for part, (absent, above) in zip(parts, await self._run("raise", calls), strict=True):
            missing += [part[position - 1].device for position in absent]
            higher += [parse(part[above[i] - 1].device, above[i + 1]) for i in range(0, len(above), 2)]
        return Raised(tuple(missing), tuple(higher))

    async def renew_many(self, live: Sequence[Lease]) -> Raised:
        """Renew the leases of all live lines. What is missing is written again: this is the rebuild too."""
        return await self.raise_many(live)

    async def rebuild(self, live: Iterable[Lease]) -> Raised:
        """Write all leases again after Redis lost them, from live lines of any number, without a pause."""
        missing: list[str] = []
        higher: list[Lease] = []
        for part in _batched(live, KEYS_A_SCRIPT * SCRIPTS_A_PIPELINE):
            raised = await self.raise_many(part)
            missing += raised.missing
            higher += raised.higher
        return Raised(tuple(missing), tuple(higher))

    async def release_many(self, leases: Sequence[Lease]) -> int:
        """Give leases back: each is deleted only while it names this grant and epoch. Returns how many were."""
        parts = _batched(leases, KEYS_A_SCRIPT)
        calls = [([lease.key for lease in part], [lease.value for lease in part]) for part in parts]
        return sum(await self._run("release", calls))

    async def read_many(self, devices: Sequence[str]) -> dict[str, Lease | None]:
        """Return what each device's key says now: a hint for consoles, never a proof."""
        found: dict[str, Lease | None] = {}
        for part in _batched(devices, KEYS_A_SCRIPT):
            values: list[Any] = await _guarded(self._redis.mget([key_of(device) for device in part]))
            pairs = zip(part, values, strict=True)
            found |= {device: None if value is None else parse(device, value) for device, value in pairs}
        return found

    async def verify(self, expected: Sequence[Lease]) -> tuple[Lease, ...]:
        """Return the expected leases that their keys do not say."""
        found = await self.read_many([lease.device for lease in expected])
        return tuple(lease for lease in expected if found[lease.device] != lease)

    async def close(self) -> None:
        """Close the connections."""
        await self._line.close()
        await self._redis.aclose()

    async def _acquire(self, gangs: Sequence[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
        """Take each part whole or not at all; return what others hold (grant, device). Many gangs share a script."""
        packs = list(_packed(gangs, KEYS_A_SCRIPT))
        calls = []
        for pack in packs:
            keys = [key_of(device) for _, part in pack for device in part]
            counted = [text for grant, part in pack for text in (grant, str(len(part)))]
            calls.append((keys, [self._pending, *counted]))
        held: list[tuple[str, str]] = []
        for pack, positions in zip(packs, await self._run("acquire", calls), strict=True):
            if positions:
                named = [(grant, device) for grant, part in pack for device in part]
                held += [named[position - 1] for position in positions]
        return held

    async def _undo_partial(
        self, chunks: Mapping[str, Sequence[Sequence[str]]], taken: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Give back what a gang of several scripts took before one of them was refused."""
        lost = [grant for grant, parts in chunks.items() if taken[grant] and len(parts) > 1]
        held = [Lease(device, grant) for grant in lost for part in chunks[grant] for device in part]
        if held:
            await self.release_many(held)

    async def _run(self, script: str, calls: Sequence[_Call]) -> list[Any]:
        """Run one script for each call, pipelined, and return the replies in order."""
        replies: list[Any] = []
        for part in _batched(calls, SCRIPTS_A_PIPELINE):
            replies += await self._pipeline(script, part)
        return replies

    async def _pipeline(self, script: str, calls: Sequence[_Call]) -> list[Any]:
        for _ in range(LOADS):
            with suppress(NoScriptError):
                return await _guarded(self._evaluate(await self._load(script), calls))
            self._loaded.clear()  # the server restarted or failed over, perhaps once more since the script was loaded
        raise UnavailableError(f"leases: the server has forgotten the script {LOADS} times")

    async def _load(self, script: str) -> str:
        if script not in self._loaded:
            text = files("libs.leases").joinpath(f"{script}.lua").read_text("utf-8")
            self._loaded[script] = await _guarded(self._redis.script_load(text))
        return self._loaded[script]

    async def _evaluate(self, digest: str, calls: Sequence[_Call]) -> list[Any]:
        if len(calls) == 1 and not self._line.busy:
            ((keys, arguments),) = calls
            return [await self._line.ask("EVALSHA", digest, len(keys), *keys, *arguments)]
        async with self._redis.pipeline(transaction=False) as pipeline:
            for keys, arguments in calls:
                _ = pipeline.evalsha(digest, len(keys), *keys, *arguments)
            replies: list[Any] = await pipeline.execute()
            return replies


async def _guarded(answer: Awaitable[_T]) -> _T:
    try:
        return await answer
    except NoScriptError:
        raise
    except RedisError as error:
        raise UnavailableError(f"leases: {error}") from error
    except RuntimeError as error:
        if says_cut(error):
            raise UnavailableError("leases: the connection is gone") from error
        raise


def _packed(gangs: Iterable[tuple[str, Sequence[str]]], size: int) -> Iterator[list[tuple[str, Sequence[str]]]]:
    """Yield gangs in order, as many at a time as have ``size`` devices together, at least one."""
    pack: list[tuple[str, Sequence[str]]] = []
    room = size
    for gang in gangs:
        if pack and len(gang[1]) > room:
            yield pack
            pack, room = [], size
        pack.append(gang)
        room -= len(gang[1])
    if pack:
        yield pack


def _batched(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part
