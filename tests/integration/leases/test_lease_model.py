"""Random operations on a real server and on a dictionary give the same answers and the same keys."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from libs.leases import Lease, Leases, Raised

DEVICES = [f"d{n}" for n in range(4)]
some_devices = st.lists(st.sampled_from(DEVICES), min_size=1, max_size=4, unique=True)
grants = st.sampled_from(["g1", "g2", "g3"])
some_leases = some_devices.flatmap(
    lambda devices: st.tuples(*(st.builds(Lease, st.just(device), grants, st.integers(0, 4)) for device in devices))
)
operations = st.one_of(
    st.tuples(st.just("acquire"), grants, some_devices),
    st.tuples(st.just("raise"), some_leases),
    st.tuples(st.just("release"), some_leases),
    st.tuples(st.just("lapse"), st.sampled_from(DEVICES)),
    st.tuples(st.just("wipe")),
)


@dataclass
class Reference:
    """The rules in ten lines."""

    keys: dict[str, Lease] = field(default_factory=dict)

    def acquire(self, grant: str, devices: Sequence[str]) -> tuple[str, ...]:
        taken = tuple(d for d in sorted(devices) if self.keys.get(d, Lease(d, grant)) != Lease(d, grant))
        self.keys |= {} if taken else {device: Lease(device, grant) for device in devices}
        return taken

    def raise_(self, leases: Sequence[Lease]) -> Raised:
        missing = tuple(lease.device for lease in leases if lease.device not in self.keys)
        higher = []
        for lease in leases:
            found = self.keys.get(lease.device)
            if found and found != lease and found.epoch >= lease.epoch:
                higher.append(found)
            else:
                self.keys[lease.device] = lease
        return Raised(missing, tuple(higher))

    def release(self, leases: Sequence[Lease]) -> int:
        gone = [lease.device for lease in leases if self.keys.get(lease.device) == lease]
        for device in gone:
            del self.keys[device]
        return len(gone)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(operations, max_size=25))
def test_the_scripts_follow_the_rules_whatever_comes(lease_url: str, steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(compare(lease_url, steps))


async def compare(url: str, steps: list[tuple[Any, ...]]) -> None:
    reference, client = Reference(), Leases(url)
    with Redis.from_url(url, decode_responses=True) as server:
        server.flushall()
        for step in steps:
            await apply(step, reference, client, server)
            held = {device: lease for device, lease in (await client.read_many(DEVICES)).items() if lease}
            assert held == reference.keys
            assert all(server.pttl(key) > 0 for key in server.scan_iter())
    await client.close()


async def apply(step: tuple[Any, ...], reference: Reference, client: Leases, server: Redis) -> None:
    match step:
        case ("acquire", grant, devices):
            assert (await client.acquire_many({grant: devices}))[grant] == reference.acquire(grant, devices)
        case ("raise", leases):
            assert await client.raise_many(leases) == reference.raise_(leases)
        case ("release", leases):
            assert await client.release_many(leases) == reference.release(leases)
        case ("lapse", device):
            server.delete(f"dev:{device}")
            reference.keys.pop(device, None)
        case _:
            server.flushall()
            reference.keys.clear()
