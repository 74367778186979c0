"""What a lease says, and how it is written in its key."""

from dataclasses import dataclass
from typing import Final

PENDING: Final = 0  # below every epoch: the sequence starts at 1
EPOCH_DIGITS: Final = 20  # 2^63 has 19


@dataclass(frozen=True, slots=True)
class Lease:
    """The Redis key of one device, naming a grant and its epoch. It proves nothing: the ledger decides."""

    device: str
    grant: str
    epoch: int = PENDING

    @property
    def key(self) -> str:
        """The key in Redis."""
        return key_of(self.device)

    @property
    def value(self) -> str:
        """The value in Redis: sorts by epoch as text."""
        return f"{self.epoch:0{EPOCH_DIGITS}d} {self.grant}"


def key_of(device: str) -> str:
    """Return the key of a device's lease."""
    return f"dev:{device}"


def parse(device: str, value: str) -> Lease:
    """Return the lease that a value says. Raises ValueError when it is none of ours."""
    epoch, _, grant = value.partition(" ")
    return Lease(device, grant, int(epoch))
