"""Redis in memory: rules L1 to L5, a ttl on every key, and the faults of a Redis: wiped, rolled back, away.

It is held to the real scripts by tests/integration/leases/test_lease_model.py.
"""

from collections.abc import Callable, Mapping, Sequence

from libs.errors import UnavailableError
from libs.leases import PENDING, Lease, Raised


class MemoryLeases:
    """The leases of all devices. ``now`` is the server's own clock, in seconds; it alone decides what expires."""

    def __init__(self, now: Callable[[], float], *, pending_seconds: float, lease_seconds: float) -> None:
        self.away = False
        self._now, self._pending, self._full = now, pending_seconds, lease_seconds
        self._keys: dict[str, tuple[Lease, float]] = {}
        self._replica: dict[str, tuple[Lease, float]] = {}

    def acquire_many(self, gangs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """Take the devices of each gang as pending, all or none; return for each what another holds."""
        return {holder: self._acquire(holder, devices) for holder, devices in gangs.items()}

    def raise_many(self, leases: Sequence[Lease]) -> Raised:
        """Raise each key to its lease with the full ttl; a key only rises in epoch."""
        missing, higher = [], []
        for lease in leases:
            found = self._get(lease.device)
            if found is None:
                missing.append(lease.device)
            if found is not None and found != lease and found.epoch >= lease.epoch:
                higher.append(found)
            else:
                self._keys[lease.device] = (lease, self._now() + self._full)
        return Raised(tuple(missing), tuple(higher))

    def release_many(self, leases: Sequence[Lease]) -> int:
        """Delete each key while it says exactly this; return how many were."""
        gone = [lease.device for lease in leases if self._get(lease.device) == lease]
        for device in gone:
            del self._keys[device]
        return len(gone)

    def read_many(self, devices: Sequence[str]) -> dict[str, Lease | None]:
        """Return what each device's key says now."""
        return {device: self._get(device) for device in devices}

    def held(self) -> list[Lease]:
        """Return all leases that have not expired; for whoever checks, who is never refused."""
        now = self._now()
        return [lease for lease, until in self._keys.values() if until > now]

    def remember(self) -> None:
        """Let a replica take over all that is held now."""
        self._replica = dict(self._keys)

    def roll_back(self) -> None:
        """Fail over to the replica, which has not heard of anything since; its keys have their whole time again."""
        until = self._now() + self._full
        self._keys = {device: (lease, until) for device, (lease, _) in self._replica.items()}

    def wipe(self) -> None:
        """Forget everything."""
        self._keys.clear()

    def _acquire(self, holder: str, devices: Sequence[str]) -> tuple[str, ...]:
        mine = {device: Lease(device, holder, PENDING) for device in sorted(devices)}
        taken = tuple(device for device, lease in mine.items() if self._get(device) not in {None, lease})
        if not taken:
            until = self._now() + self._pending
            self._keys |= {device: (lease, until) for device, lease in mine.items()}
        return taken

    def _get(self, device: str) -> Lease | None:
        if self.away:
            raise UnavailableError("the leases are away")
        found = self._keys.get(device)
        return found[0] if found and found[1] > self._now() else None
