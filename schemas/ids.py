"""Typed ids. They are derived, never drawn: the same cause gives the same id, so a replayed turn says the same facts.

Every id is one NATS token: ``[a-z0-9_-]``, at most 64 characters.
"""

import re
from functools import lru_cache
from hashlib import sha1
from typing import Annotated, Final, NewType
from uuid import UUID

from pydantic import StringConstraints

TOKEN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_Token = Annotated[str, StringConstraints(pattern=f"^{TOKEN.pattern}$")]
TenantId = NewType("TenantId", _Token)
JobId = NewType("JobId", _Token)
RunName = NewType("RunName", _Token)
GrantId = NewType("GrantId", _Token)
ClusterId = NewType("ClusterId", _Token)
NodeId = NewType("NodeId", _Token)
DeviceId = NewType("DeviceId", _Token)
DrainId = NewType("DrainId", _Token)
MoveId = NewType("MoveId", _Token)
IncidentId = NewType("IncidentId", _Token)
DriftId = NewType("DriftId", _Token)
UsageId = NewType("UsageId", _Token)

NAMESPACE: Final = UUID("7b1f6a52-2f0e-5b1c-9c55-3e1d0a6f4c11")
FACTS: Final = 1_024  # whose ids are kept at hand: a core works one out to remember it, and the turn to say it
_BEGUN: Final = sha1(NAMESPACE.bytes, usedforsecurity=False)


def named(text: str) -> UUID:
    """Return the name-based UUID (version 5) of a text in our namespace, faster than ``uuid.uuid5`` does."""
    digest = _BEGUN.copy()
    digest.update(text.encode())
    return UUID(bytes=digest.digest()[:16], version=5)


def is_token(text: str) -> bool:
    """Say whether the text may stand as one token of a subject."""
    return TOKEN.fullmatch(text) is not None


def derive(kind: str, *parts: str | int) -> str:
    """Return ``<kind>_<32 hex>``, the same for the same parts for ever."""
    return f"{kind}_{named('/'.join((kind, *map(str, parts)))).hex}"


def job_id(tenant: str, name: str, generation: int) -> JobId:
    """Return the id of the generation-th job that a tenant submitted under this name (from 1)."""
    return JobId(derive("job", tenant, name, generation))


def run_name(job: JobId, attempt: int) -> RunName:
    """Return the name a destination knows the attempt by: one launch under it may win, whatever is sent twice."""
    return RunName(f"{job}-a{attempt}")


def grant_id(job: JobId, attempt: int, number: int) -> GrantId:
    """Return the id of the number-th grant that the attempt was given (from 1)."""
    return GrantId(derive("grant", job, attempt, number))


def cluster_id(name: str) -> ClusterId:
    """Return the id of a cluster by its fleet-wide name."""
    return ClusterId(derive("cluster", name))


def node_id(cluster: ClusterId, name: str) -> NodeId:
    """Return the id of a node by its name inside its cluster."""
    return NodeId(derive("node", cluster, name))


def move_id(node: NodeId, number: int) -> MoveId:
    """Return the id of a node's number-th move to another destination (from 1)."""
    return MoveId(derive("move", node, number))


def device_id(node: NodeId, uuid: str) -> DeviceId:
    """Return the id of a device by what its vendor calls it (``GPU-…``), never by its index."""
    return DeviceId(derive("dev", node, uuid))


@lru_cache(FACTS)
def fact_id(kind: str, key: str, version: int) -> UUID:
    """Return the id of a fact: one writer gives each version of an entity once, so this names the fact."""
    return named(f"{kind}/{key}/{version}")
