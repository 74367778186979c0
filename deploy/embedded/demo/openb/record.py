"""What ledger, gateway and admission have on record of the play, read from Postgres as the operator."""

from dataclasses import dataclass

from deploy.embedded.servers.roles import Connection

HOLDS = """
SELECT g.gpu_class, (SELECT count(*) FROM placement.lines l WHERE l.grant_id = g.id)::int AS devices,
       extract(epoch FROM g.issued_at)::float8 AS issued, extract(epoch FROM max(p.released_at))::float8 AS released
FROM placement.grants g JOIN placement.parts p ON p.grant_id = g.id GROUP BY g.id
"""
JOBS = """
SELECT a.name, a.state, r.devices, extract(epoch FROM q.submitted_at)::float8 AS submitted,
       extract(epoch FROM g.issued)::float8 AS issued, extract(epoch FROM g.claimed)::float8 AS started,
       extract(epoch FROM g.released)::float8 AS released, a.attempt
FROM admission.jobs a
JOIN gateway.request q ON q.job = a.job
CROSS JOIN LATERAL (SELECT (q.document #>> '{spec,devicesPerReplica}')::int AS devices) r
LEFT JOIN (
    SELECT g.job, min(g.issued_at) AS issued, min(p.claimed_at) AS claimed, max(p.released_at) AS released
    FROM placement.grants g JOIN placement.parts p ON p.grant_id = g.id GROUP BY g.job
) g ON g.job = a.job
"""
STATES = """
SELECT (SELECT count(*) FROM admission.jobs)::int AS known,
       (SELECT count(*) FROM admission.jobs WHERE state NOT IN ('Queued', 'Admitted'))::int AS ended,
       (SELECT count(*) FROM admission.jobs WHERE state = 'Queued')::int AS waiting,
       (SELECT count(*) FROM placement.parts WHERE state IN ('Claimed', 'Revoking'))::int AS running,
       (SELECT count(*) FROM placement.lines WHERE live)::int AS devices
"""
READY = "SELECT count(*)::int FROM placement.nodes WHERE reported AND NOT stale AND NOT retired"


@dataclass(frozen=True, slots=True)
class Hold:
    """A grant's hold on devices of one class; seconds since 1970."""

    gpu_class: str
    devices: int
    issued: float
    released: float | None


@dataclass(frozen=True, slots=True)
class Done:
    """One job, from when the gateway took it."""

    name: str
    state: str
    devices: int
    submitted: float
    issued: float | None
    started: float | None
    released: float | None
    attempt: int


@dataclass(frozen=True, slots=True)
class Moment:
    """How far the play has come: jobs known to admission, of these ended, and so on; devices with a live line."""

    known: int
    ended: int
    waiting: int
    running: int
    devices: int


async def moment(connection: Connection) -> Moment:
    """Read where the play stands."""
    return Moment(**dict(await connection.fetchrow(STATES) or {}))


async def nodes_ready(connection: Connection) -> int:
    """Return how many nodes placement offers."""
    return int(await connection.fetchval(READY))


async def holds(connection: Connection) -> list[Hold]:
    """Read all grants."""
    return [Hold(**row) for row in await connection.fetch(HOLDS)]


async def jobs(connection: Connection) -> list[Done]:
    """Read all jobs."""
    return [Done(**row) for row in await connection.fetch(JOBS)]
