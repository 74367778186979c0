"""Leases under a server that dies all the time, asked as a service asks: on uvloop, with words of its own for a cut."""

import asyncio
import time
from pathlib import Path

import pytest
import uvloop

from libs.errors import UnavailableError
from libs.leases import Lease, Leases
from tests.support.lease_servers import binaries, killed_again_and_again

LEAST_SECONDS, MOST_SECONDS = 4, 60


async def _ask_on(leases: Leases, number: int) -> tuple[int, int]:
    answered = away = 0
    many = [f"{number}-{place}" for place in range(1_200)]
    began = time.monotonic()
    while time.monotonic() - began < (LEAST_SECONDS if answered and away else MOST_SECONDS):
        try:
            await leases.acquire_many({f"g{number}": many[:8]})
            await leases.rebuild([Lease(device, f"g{number}", 1) for device in many])
            await leases.read_many(many)
            answered += 1
        except UnavailableError:
            away += 1
            await asyncio.sleep(0)
    return answered, away


@pytest.mark.parametrize("server", sorted(binaries()))
def test_a_server_that_is_killed_again_and_again_is_only_ever_unavailable(server: str, tmp_path: Path) -> None:
    async def asked(url: str) -> list[tuple[int, int]]:
        leases = Leases(url)
        try:
            return await asyncio.gather(*(_ask_on(leases, number) for number in range(4)))
        finally:
            await leases.close()

    with killed_again_and_again(binaries()[server], tmp_path) as url:
        counted = uvloop.run(asked(url))
    assert all(map(all, counted)), counted
