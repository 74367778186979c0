"""Facts of the ledger plane: what was used, by whom, for how much."""

from datetime import datetime

from schemas.base import Event, Value
from schemas.ids import DeviceId, GrantId, JobId, NodeId, TenantId, UsageId


class UsageLine(Value):
    """One device interval [started_at, ended_at) and its price. Amounts are integer millionths of the currency."""

    device: DeviceId
    started_at: datetime
    ended_at: datetime
    price_micros_per_hour: int
    amount_micros: int


class UsageRated(Event):
    """The device intervals of one released part, exactly once. Key: usage. ``account``: tenant or platform-loss."""

    usage: UsageId
    grant: GrantId
    job: JobId
    attempt: int
    tenant: TenantId
    account: str
    queue: str
    gpu_class: str
    node: NodeId
    currency: str
    lines: tuple[UsageLine, ...]
