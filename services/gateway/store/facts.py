"""Where facts go: folded views, written in batches, the same whatever order and number they come in."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from pydantic_core import to_json

from libs.pg.pool import Connection
from schemas.base import Envelope, Event
from schemas.codec import as_said
from schemas.fleet import MoveAdvanced, MoveCancelled, MoveCompleted, MoveRequested, MoveWaited
from schemas.ids import GrantId, JobId, NodeId
from schemas.ledger import UsageRated
from services.gateway.core.fleet import RELEASED_RANK, NodeView, PartView
from services.gateway.core.job import JobView, history_of

MoveTold = MoveRequested | MoveAdvanced | MoveWaited | MoveCompleted | MoveCancelled
_FOLDING: Final = 7_201  # the advisory lock of whoever folds facts


async def begin(connection: Connection) -> None:
    """Let one transaction at a time fold facts.

    Nothing is lost between reading a view and writing it, and events become visible in the order of their positions.
    """
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _FOLDING)


async def known(connection: Connection, ids: Collection[UUID]) -> set[UUID]:
    """Return those of the facts that were folded and are not forgotten."""
    return {row["fact"] for row in await connection.fetch(_KNOWN, list(ids))}


async def jobs(connection: Connection, ids: Collection[JobId]) -> dict[JobId, JobView]:
    """Return the views of these jobs."""
    rows = await connection.fetch(_JOBS, sorted(ids))
    return {row["job"]: JobView.model_validate_json(row["body"]) for row in rows}


async def save_jobs(connection: Connection, views: Sequence[JobView]) -> None:
    """Keep views of jobs."""
    await connection.execute(
        _SAVE_JOBS,
        [view.job for view in views],
        [view.tenant for view in views],
        [view.state for view in views],
        [view.attempt for view in views],
        [view.life.ended for view in views],
        [view.charge.attempt if view.charge else None for view in views],
        [view.charge.gpu_class if view.charge else None for view in views],
        [view.charge.devices if view.charge else None for view in views],
        [view.model_dump_json() for view in views],
    )


async def add_history(connection: Connection, facts: Sequence[tuple[JobId, Envelope]]) -> None:
    """Add lines to the histories of jobs."""
    await connection.execute(
        _ADD_HISTORY,
        [envelope.id for _, envelope in facts],
        [job for job, _ in facts],
        [envelope.time for _, envelope in facts],
        [envelope.version for _, envelope in facts],
        [history_of(envelope).model_dump_json() for _, envelope in facts],
    )


async def nodes(connection: Connection, ids: Collection[NodeId]) -> dict[NodeId, NodeView]:
    """Return the views of these nodes."""
    rows = await connection.fetch(_NODES, sorted(ids))
    return {row["node"]: NodeView.model_validate_json(row["body"]) for row in rows}


async def save_nodes(connection: Connection, views: Sequence[NodeView]) -> None:
    """Keep views of nodes."""
    infos = [view.info for view in views]
    await connection.execute(
        _SAVE_NODES,
        [view.node for view in views],
        [info.owned_by if info else "" for info in infos],
        [info.owned_by_name if info else "" for info in infos],
        [info.name if info else "" for info in infos],
        [to_json(info.place if info else {}).decode() for info in infos],
        [to_json(view.devices_by_class()).decode() for view in views],
        [bool(info and info.marks) for info in infos],
        [view.stale for view in views],
        [view.is_retired or view.info is None for view in views],
        [view.model_dump_json() for view in views],
    )


async def parts(connection: Connection, keys: Collection[tuple[GrantId, NodeId]]) -> list[PartView]:
    """Return the views of these parts of grants."""
    ordered = sorted(keys)
    rows = await connection.fetch(_PARTS, [grant for grant, _ in ordered], [node for _, node in ordered])
    return [PartView.model_validate({**row, "grant": row["grant_id"]}) for row in rows]


async def save_parts(connection: Connection, views: Iterable[PartView]) -> None:
    """Keep views of parts of grants."""
    rows = list(views)
    await connection.execute(
        _SAVE_PARTS,
        [view.grant for view in rows],
        [view.node for view in rows],
        [view.job for view in rows],
        [view.attempt for view in rows],
        [view.rank for view in rows],
        [view.named_by for view in rows],
        [view.lost for view in rows],
        [view.gpu_class for view in rows],
        [",".join(view.devices) for view in rows],
    )


async def save_latest(connection: Connection, newest: Mapping[tuple[str, str], Envelope]) -> None:
    """Keep the newest fact of clusters, incidents, drains and moves; an older one than is kept changes nothing."""
    facts = list(newest.values())
    await connection.execute(
        _SAVE_LATEST,
        [fact.type.split(".")[1] for fact in facts],
        [fact.key for fact in facts],
        [fact.version for fact in facts],
        [fact.type.split(".")[2] for fact in facts],
        [_node_of(fact.data) for fact in facts],
        [fact.time for fact in facts],
        [fact.data.model_dump_json() for fact in facts],
    )


def _node_of(fact: Event) -> NodeId | None:
    return fact.info.node if isinstance(fact, MoveTold) else getattr(fact, "node", None)


async def add_usage(connection: Connection, facts: Sequence[UsageRated]) -> None:
    """Add rated device intervals; one that is there stays as it is."""
    rows = [(fact, place, line) for fact in facts for place, line in enumerate(fact.lines)]
    await connection.execute(
        _ADD_USAGE,
        [fact.usage for fact, _, _ in rows],
        [place for _, place, _ in rows],
        [fact.account for fact, _, _ in rows],
        [fact.tenant for fact, _, _ in rows],
        [fact.queue for fact, _, _ in rows],
        [fact.gpu_class for fact, _, _ in rows],
        [fact.job for fact, _, _ in rows],
        [fact.currency for fact, _, _ in rows],
        [line.started_at for _, _, line in rows],
        [line.ended_at for _, _, line in rows],
        [line.amount_micros for _, _, line in rows],
    )


async def add_events(connection: Connection, facts: Sequence[Envelope]) -> None:
    """Add facts to the log that clients follow."""
    await connection.execute(
        _ADD_EVENTS,
        [fact.id for fact in facts],
        [fact.type for fact in facts],
        [getattr(fact.data, "tenant", None) for fact in facts],
        [getattr(fact.data, "job", None) for fact in facts],
        [as_said(fact).decode() for fact in facts],
    )


async def forget(connection: Connection, *, before: datetime, events: int) -> None:
    """Drop what is old: events before a time or beyond a number, history of ended jobs, released parts."""
    await connection.execute(_FORGET_EVENTS, before, events)
    await connection.execute(_FORGET_HISTORY, before)
    await connection.execute("DELETE FROM part WHERE rank = $1 AND changed_at < $2", RELEASED_RANK, before)


_KNOWN: Final = """
SELECT fact FROM event WHERE fact = ANY($1::uuid[])
UNION ALL
SELECT fact FROM job_history WHERE fact = ANY($1::uuid[])
"""
_JOBS: Final = "SELECT job, body FROM job_view WHERE job = ANY($1::text[])"
_SAVE_JOBS: Final = """
INSERT INTO job_view (job, tenant, state, attempt, ended, charge_attempt, charge_class, charge_devices, body)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bool[], $6::int[], $7::text[], $8::int[],
                     $9::json[])
ON CONFLICT (job) DO UPDATE
SET state = excluded.state, attempt = excluded.attempt, ended = excluded.ended,
    charge_attempt = excluded.charge_attempt, charge_class = excluded.charge_class,
    charge_devices = excluded.charge_devices, body = excluded.body
"""
_ADD_HISTORY: Final = """
INSERT INTO job_history (fact, job, at, version, body)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::bigint[], $5::json[])
ON CONFLICT (fact) DO NOTHING
"""
_NODES: Final = "SELECT node, body FROM node_view WHERE node = ANY($1::text[])"
_SAVE_NODES: Final = """
INSERT INTO node_view (node, cluster, cluster_name, name, place, classes, marked, stale, retired, body)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::jsonb[], $7::bool[], $8::bool[],
                     $9::bool[], $10::json[])
ON CONFLICT (node) DO UPDATE
SET cluster = excluded.cluster, cluster_name = excluded.cluster_name, name = excluded.name, place = excluded.place,
    classes = excluded.classes, marked = excluded.marked, stale = excluded.stale, retired = excluded.retired,
    body = excluded.body
"""
_PARTS: Final = """
SELECT grant_id, node, job, attempt, rank, named_by, lost, gpu_class, devices FROM part
WHERE (grant_id, node) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""
_SAVE_PARTS: Final = """
INSERT INTO part (grant_id, node, job, attempt, rank, named_by, lost, gpu_class, devices)
SELECT grant_id, node, job, attempt, rank, named_by, lost, gpu_class, string_to_array(devices, ',')
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::smallint[], $6::smallint[], $7::bool[], $8::text[],
            $9::text[])
     AS p(grant_id, node, job, attempt, rank, named_by, lost, gpu_class, devices)
ON CONFLICT (grant_id, node) DO UPDATE
SET rank = excluded.rank, named_by = excluded.named_by, lost = excluded.lost, gpu_class = excluded.gpu_class,
    devices = excluded.devices, changed_at = now()
"""
_SAVE_LATEST: Final = """
INSERT INTO latest (noun, key, version, verb, node, at, data)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::json[])
ON CONFLICT (noun, key) DO UPDATE
SET version = excluded.version, verb = excluded.verb, node = excluded.node, at = excluded.at, data = excluded.data
WHERE latest.version < excluded.version
"""
_ADD_USAGE: Final = """
INSERT INTO usage_line (usage, place, account, tenant, queue, gpu_class, job, currency, started_at, ended_at,
                        amount_micros)
SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                     $9::timestamptz[], $10::timestamptz[], $11::bigint[])
ON CONFLICT (usage, place) DO NOTHING
"""
_ADD_EVENTS: Final = """
INSERT INTO event (fact, type, tenant, job, body)
SELECT fact, type, tenant, job, body
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::json[]) WITH ORDINALITY
     AS e(fact, type, tenant, job, body, place)
ORDER BY place
ON CONFLICT (fact) DO NOTHING
"""
_FORGET_EVENTS: Final = """
DELETE FROM event WHERE heard_at < $1 OR position <= (SELECT max(position) - $2 FROM event)
"""
_FORGET_HISTORY: Final = """
DELETE FROM job_history h USING job_view v WHERE h.job = v.job AND v.ended AND h.at < $1
"""
