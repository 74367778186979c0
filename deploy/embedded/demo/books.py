"""What the ledger and billing have on record, read from Postgres as the operator."""

from dataclasses import dataclass

from deploy.embedded.servers.roles import Connection

HOLDS = """
SELECT lines.device, nodes.name || '/' || devices.index AS label, grants.name AS job, grants.tenant, grants.queue,
       grants.attempt, grants.id AS grant, grants.epoch, lines.rank,
       extract(epoch FROM grants.issued_at)::float8 AS issued,
       extract(epoch FROM parts.claimed_at)::float8 AS claimed,
       extract(epoch FROM parts.released_at)::float8 AS released,
       parts.state || coalesce(', ' || parts.seal_note, '') AS note
  FROM placement.lines
  JOIN placement.parts ON parts.grant_id = lines.grant_id AND parts.node = lines.node
  JOIN placement.grants ON grants.id = lines.grant_id
  JOIN placement.devices ON devices.device = lines.device
  JOIN placement.nodes ON nodes.node = lines.node
 WHERE lines.kind = 'grant'
 ORDER BY grants.issued_at, nodes.name, devices.index
"""
CHARGES = """
SELECT lines.grant_id AS grant, lines.device, lines.account, parts.tenant, lines.amount_micros, lines.micros_per_hour,
       extract(epoch FROM lines.started_at)::float8 AS start,
       extract(epoch FROM lines.ended_at)::float8 AS end
  FROM billing.lines
  JOIN billing.parts ON parts.grant_id = lines.grant_id AND parts.node = lines.node
 ORDER BY lines.started_at, lines.device
"""


@dataclass(frozen=True, slots=True)
class Hold:
    """A grant's hold on a device, as the ledger has it; times in seconds since 1970, None: not (yet)."""

    device: str
    label: str
    job: str
    tenant: str
    queue: str
    attempt: int
    grant: str
    epoch: int
    rank: int
    issued: float
    claimed: float | None
    released: float | None
    note: str = ""  # the part's state, and why it could not be sealed when it was last asked


@dataclass(frozen=True, slots=True)
class Charge:
    """A line of the bill: one device, one grant, from start to end."""

    grant: str
    device: str
    account: str
    tenant: str
    amount_micros: int
    micros_per_hour: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Books:
    """Everything on record."""

    holds: tuple[Hold, ...]
    charges: tuple[Charge, ...]


async def read(connection: Connection) -> Books:
    """Read both books in one moment. Raises asyncpg.PostgresError."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        holds = [Hold(**row) for row in await connection.fetch(HOLDS)]
        charges = [Charge(**row) for row in await connection.fetch(CHARGES)]
    return Books(tuple(holds), tuple(charges))
