"""What users wrote: jobs by generation, declarations by their newest generation, orders."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar
from uuid import UUID

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from libs.pg.pool import Connection, Record
from schemas.spec.cluster import Cluster
from schemas.spec.gpuclass import GpuClass
from schemas.spec.queue import Queue
from services.gateway.core.submission import Key, Known, Standing
from services.gateway.store import people

T = TypeVar("T", Queue, Cluster, GpuClass)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that was just submitted."""

    id: str
    key: Key
    generation: int
    queue: str
    digest: str
    document: Mapping[str, JsonValue]
    fact: UUID


@dataclass(frozen=True, slots=True)
class NewDeclaration:
    """A declaration that is new or changed."""

    id: str
    key: Key
    generation: int
    digest: str
    document: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class NewOrder:
    """An order about a node."""

    id: str
    verb: str
    cluster: str
    node: str
    owner: str
    reason: str
    fact: UUID


async def hold_keys(connection: Connection, keys: Collection[Key]) -> None:
    """Let one transaction at a time decide about each of these keys. Sorted, so that two cannot deadlock."""
    names = sorted({f"{key.kind}/{key.tenant}/{key.name}" for key in keys})
    await connection.execute(_HOLD, names)


async def standings(connection: Connection, keys: Collection[Key]) -> dict[Key, Standing]:
    """Return the newest document under each of these keys, where there is one."""
    kinds, tenants, names = [k.kind for k in keys], [k.tenant for k in keys], [k.name for k in keys]
    rows = await connection.fetch(_STANDINGS, kinds, tenants, names)
    return {Key(row["kind"], row["tenant"], row["name"]): _standing(row) for row in rows}


def _standing(row: Record) -> Standing:
    return Standing(row["id"], row["generation"], from_json(row["document"]), row["ended"])


async def known(connection: Connection, tenants: Collection[str]) -> Known:
    """Return what documents of these tenants may refer to."""
    rows = await connection.fetch(_KNOWN, list(tenants))
    queues = {Key("Queue", r["tenant"], r["name"]): _read(Queue, r) for r in rows if r["kind"] == "Queue"}
    clusters = [_read(Cluster, row) for row in rows if row["kind"] == "Cluster"]
    return Known(
        tenants=await people.tenant_names(connection),
        queues=queues,
        classes={row["name"]: _read(GpuClass, row).spec.match.model for row in rows if row["kind"] == "GpuClass"},
        levels={level for cluster in clusters for level in cluster.spec.all_levels()},
    )


def _read(kind: type[T], row: Record) -> T:
    return kind.model_validate_json(row["document"])


async def add_jobs(connection: Connection, jobs: Sequence[NewJob], by: str, at: datetime) -> None:
    """Keep new jobs."""
    if not jobs:
        return
    await connection.execute(
        _ADD_JOBS,
        [job.id for job in jobs],
        [job.key.tenant for job in jobs],
        [job.key.name for job in jobs],
        [job.generation for job in jobs],
        [job.queue for job in jobs],
        [job.digest for job in jobs],
        [to_json(job.document).decode() for job in jobs],
        [job.fact for job in jobs],
        by,
        at,
    )


async def put_declarations(connection: Connection, items: Sequence[NewDeclaration], by: str, at: datetime) -> None:
    """Keep new declarations in place of the ones before them."""
    if not items:
        return
    await connection.execute(
        _PUT_DECLARATIONS,
        [item.key.kind for item in items],
        [item.key.tenant for item in items],
        [item.key.name for item in items],
        [item.id for item in items],
        [item.generation for item in items],
        [item.digest for item in items],
        [to_json(item.document).decode() for item in items],
        by,
        at,
    )


async def withdraw(connection: Connection, job: str, fact: UUID, by: str, at: datetime) -> bool:
    """Note that a job was wished away; return whether it is the first time."""
    return await connection.fetchval(_WITHDRAW, job, fact, by, at) is not None


async def add_order(connection: Connection, order: NewOrder, at: datetime) -> None:
    """Keep an order until it is answered."""
    await connection.execute(
        _ADD_ORDER, order.id, order.verb, order.cluster, order.node, order.owner, order.reason, order.fact, at
    )


async def answered(connection: Connection, facts: Collection[UUID], at: datetime) -> None:
    """Note which orders were answered, by their facts."""
    await connection.execute(
        "UPDATE node_order SET answered_at = $2 WHERE fact = ANY($1::uuid[]) AND answered_at IS NULL", list(facts), at
    )


async def unanswered(connection: Connection, *, quiet_seconds: float) -> list[UUID]:
    """Return the facts nobody has answered: jobs not heard of, withdrawals without an end, orders of the last hour."""
    return [row["fact"] for row in await connection.fetch(_UNANSWERED, quiet_seconds)]


_HOLD: Final = """
SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM unnest($1::text[]) AS k(name)
"""
_STANDINGS: Final = """
SELECT k.kind, k.tenant, k.name, r.job AS id, r.generation, r.document::text AS document,
       coalesce(v.ended, false) AS ended
FROM unnest($1::text[], $2::text[], $3::text[]) AS k(kind, tenant, name)
JOIN LATERAL (
    SELECT job, generation, document FROM request
    WHERE request.tenant = k.tenant AND request.name = k.name ORDER BY generation DESC LIMIT 1
) r ON k.kind = 'Job'
LEFT JOIN job_view v ON v.job = r.job
UNION ALL
SELECT d.kind, d.tenant, d.name, d.id, d.generation, d.document::text, false
FROM unnest($1::text[], $2::text[], $3::text[]) AS k(kind, tenant, name)
JOIN declaration d ON (d.kind, d.tenant, d.name) = (k.kind, k.tenant, k.name)
"""
_KNOWN: Final = """
SELECT kind, tenant, name, document FROM declaration WHERE kind <> 'Queue' OR tenant = ANY($1::text[])
"""
_ADD_JOBS: Final = """
INSERT INTO request (job, tenant, name, generation, queue, digest, document, fact, submitted_by, submitted_at)
SELECT j.*, $9::text, $10::timestamptz
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::text[], $7::json[], $8::uuid[]) AS j
"""
_PUT_DECLARATIONS: Final = """
INSERT INTO declaration (kind, tenant, name, id, generation, digest, document, applied_by, applied_at)
SELECT d.*, $8::text, $9::timestamptz
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::jsonb[]) AS d
ON CONFLICT (kind, tenant, name) DO UPDATE
SET generation = excluded.generation, digest = excluded.digest, document = excluded.document,
    applied_by = excluded.applied_by, applied_at = excluded.applied_at
"""
_WITHDRAW: Final = """
UPDATE request SET withdrawn_fact = $2, withdrawn_by = $3, withdrawn_at = $4
WHERE job = $1 AND withdrawn_at IS NULL RETURNING job
"""
_ADD_ORDER: Final = """
INSERT INTO node_order (id, verb, cluster, node, owner, reason, fact, ordered_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_UNANSWERED: Final = """
SELECT r.fact FROM request r
WHERE NOT EXISTS (SELECT FROM job_view v WHERE v.job = r.job) AND r.submitted_at < now() - make_interval(secs => $1)
UNION ALL
SELECT r.withdrawn_fact FROM request r LEFT JOIN job_view v ON v.job = r.job
WHERE r.withdrawn_at < now() - make_interval(secs => $1) AND NOT coalesce(v.ended, false)
UNION ALL
SELECT fact FROM node_order
WHERE answered_at IS NULL AND ordered_at < now() - make_interval(secs => $1) AND ordered_at > now() - interval '1 hour'
LIMIT 1000
"""
