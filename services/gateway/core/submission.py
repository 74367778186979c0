"""What becomes of a document that was read well: created, unchanged, changed, or an error with a remedy."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from pydantic import JsonValue

from schemas.ids import cluster_id, derive, job_id
from schemas.spec import Document
from schemas.spec.cluster import Cluster
from schemas.spec.gpuclass import GpuClass
from schemas.spec.job import Job
from schemas.spec.parse import DocumentFault, field_path, nearest
from schemas.spec.queue import Queue

MAX_JOB_BYTES: Final = 128 * 1024  # it travels in facts of at most 512 KiB, beside the parts of its grant
MAX_OTHER_BYTES: Final = 400 * 1024
FLEET_SCOPE: Final = "fleet"
_SHOWN_FIELDS: Final = 10


class Outcome(StrEnum):
    """What became of a document."""

    CREATED = "created"
    UNCHANGED = "unchanged"
    CHANGED = "changed"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Key:
    """What a document is known by. Fleet-wide kinds have an empty tenant."""

    kind: str
    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest document under a key, and whether its life is over (jobs only)."""

    id: str
    generation: int
    document: dict[str, JsonValue]
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome, and the id and generation it is kept under."""

    outcome: Outcome
    id: str | None = None
    generation: int = 0
    faults: tuple[DocumentFault, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What documents may refer to. ``classes``: which model each matches."""

    tenants: Collection[str]
    queues: Mapping[Key, Queue]
    classes: Mapping[str, str]
    levels: Collection[str]

    def with_documents(self, documents: Collection[Document]) -> "Known":
        """Return it with what is declared beside: a queue and its jobs may come in one text."""
        levels = {level for d in documents if isinstance(d, Cluster) for level in d.spec.all_levels()}
        return replace(
            self,
            queues={**self.queues, **{key_of(d): d for d in documents if isinstance(d, Queue)}},
            classes={**self.classes, **{d.metadata.name: _model(d) for d in documents if isinstance(d, GpuClass)}},
            levels={*self.levels, *levels},
        )


def with_tenant(document: Document, tenant: str) -> Document:
    """Return the document with its tenant filled in where it was left out; fleet-wide kinds stay without."""
    if isinstance(document, GpuClass | Cluster) or document.metadata.tenant is not None:
        return document
    return document.model_copy(update={"metadata": document.metadata.model_copy(update={"tenant": tenant})})


def key_of(document: Document) -> Key:
    """Return what the document is known by."""
    return Key(document.kind, document.metadata.tenant or "", document.metadata.name)


def id_of(key: Key, generation: int) -> str:
    """Return the id of a document: of a job each generation has its own."""
    if key.kind == "Job":
        return job_id(key.tenant, key.name, generation)
    return cluster_id(key.name) if key.kind == "Cluster" else derive(key.kind.lower(), key.tenant, key.name)


def content(document: Document) -> dict[str, JsonValue]:
    """Return the document as JSON values, as it is kept and compared."""
    value: dict[str, JsonValue] = document.model_dump(mode="json")
    return value


def digest(value: Mapping[str, JsonValue]) -> str:
    """Return the SHA-256 of the content: the same for the same document, whatever its layout and order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def decide(key: Key, value: dict[str, JsonValue], standing: Standing | None, *, again: bool) -> Verdict:
    """Return what becomes of a good document, given the newest one under its key."""
    if standing is None:
        return Verdict(Outcome.CREATED, id_of(key, 1), 1)
    if key.kind == "Job":
        return _decide_job(key, value, standing, again=again)
    if standing.document == value:
        return Verdict(Outcome.UNCHANGED, standing.id, standing.generation)
    return Verdict(Outcome.CHANGED, standing.id, standing.generation + 1)


def _decide_job(key: Key, value: dict[str, JsonValue], standing: Standing, *, again: bool) -> Verdict:
    if standing.ended and again:
        generation = standing.generation + 1
        return Verdict(Outcome.CREATED, id_of(key, generation), generation)
    if standing.ended:
        message = f"job {key.name} has ended ({standing.id})"
        return _error(standing.id, "metadata.name", message, "submit with --again for a new one, or use another name")
    fields = list(differing(standing.document, value))  # one that is new and left out is no difference
    if not fields:
        return Verdict(Outcome.UNCHANGED, standing.id, standing.generation)
    shown = ", ".join(fields[:_SHOWN_FIELDS]) + (", …" if len(fields) > _SHOWN_FIELDS else "")
    message = f"job {key.name} is alive ({standing.id}) with other content: {shown}"
    return _error(standing.id, fields[0], message, "use another name, or cancel it and submit with --again")


def _error(identity: str | None, path: str, message: str, remedy: str) -> Verdict:
    return Verdict(Outcome.ERROR, identity, faults=(DocumentFault(path=path, message=message, remedy=remedy),))


def differing(before: JsonValue, after: JsonValue, path: tuple[str | int, ...] = ()) -> Iterator[str]:
    """Yield the paths of the fields in which two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from differing(before.get(name), after.get(name), (*path, name))
    elif before != after:
        yield field_path(path)


def faults_of(document: Document, known: Known) -> tuple[DocumentFault, ...]:
    """Return what is wrong with a document among what is known: names that nothing has, sizes no fact can carry."""
    limit = MAX_JOB_BYTES if isinstance(document, Job) else MAX_OTHER_BYTES
    if (size := len(document.model_dump_json())) > limit:
        message = f"{size} bytes are over the limit of {limit} for a {document.kind}"
        return (DocumentFault(path="", message=message, remedy="keep large inputs in files that the job reads"),)
    match document:
        case Job():
            return tuple(_job_faults(document, known))
        case Queue():
            return tuple(_queue_faults(document, known))
        case GpuClass() | Cluster():
            return tuple(_fleet_wide_faults(document, known))


def _job_faults(job: Job, known: Known) -> Iterator[DocumentFault]:
    tenant = job.metadata.tenant or ""
    if unknown := _tenant_fault(tenant, known):
        yield unknown
        return
    queue = known.queues.get(Key("Queue", tenant, job.spec.queue))
    if queue is None:
        names = [key.name for key in known.queues if key.tenant == tenant]
        message = f"tenant {tenant} has no queue {job.spec.queue}"
        remedy = nearest(job.spec.queue, names) or "an admin declares one with a Queue document"
        yield DocumentFault(path="spec.queue", message=message, remedy=remedy)
    else:
        yield from _class_faults(job, queue)
    yield from _level_faults(job, known)


def _class_faults(job: Job, queue: Queue) -> Iterator[DocumentFault]:
    offered = [quota.gpu_class for quota in queue.spec.quotas]
    for index, name in enumerate(job.spec.classes):
        if name not in offered:
            message = f"class {name} is not offered in queue {queue.metadata.name}"
            yield DocumentFault(path=f"spec.classes[{index}]", message=message, remedy=nearest(name, offered))


def _level_faults(job: Job, known: Known) -> Iterator[DocumentFault]:
    topology = job.spec.topology
    if topology is None or not known.levels:
        return
    field = "required" if topology.required else "preferred"
    level = topology.required or topology.preferred or ""
    if level not in known.levels:
        message = f"no cluster has a topology level {level}"
        yield DocumentFault(path=f"spec.topology.{field}", message=message, remedy=nearest(level, known.levels))


def _queue_faults(queue: Queue, known: Known) -> Iterator[DocumentFault]:
    if unknown := _tenant_fault(queue.metadata.tenant or "", known):
        yield unknown
    for index, quota in enumerate(queue.spec.quotas):
        if quota.gpu_class not in known.classes:
            remedy = nearest(quota.gpu_class, known.classes) or "declare it first with a GpuClass document"
            message = f"there is no GpuClass {quota.gpu_class}"
            yield DocumentFault(path=f"spec.quotas[{index}].class", message=message, remedy=remedy)


def _tenant_fault(tenant: str, known: Known) -> DocumentFault | None:
    if tenant in known.tenants:
        return None
    remedy = nearest(tenant, known.tenants) or "an admin creates it with 'triplane tenants create'"
    return DocumentFault(path="metadata.tenant", message=f"there is no tenant {tenant}", remedy=remedy)


def _fleet_wide_faults(document: GpuClass | Cluster, known: Known) -> Iterator[DocumentFault]:
    if document.metadata.tenant is not None:
        message = f"a {document.kind} belongs to the whole fleet"
        yield DocumentFault(path="metadata.tenant", message=message, remedy="take the tenant out")
    if isinstance(document, GpuClass):
        model, name = _model(document), document.metadata.name
        others = sorted(other for other, matched in known.classes.items() if matched == model and other != name)
        if others:
            message = f"{model} is matched by GpuClass {others[0]}, and a device has one class"
            yield DocumentFault(path="spec.match.model", message=message, remedy=f"use {others[0]}, or change it first")


def _model(document: GpuClass) -> str:
    return document.spec.match.model
