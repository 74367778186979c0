"""What users and operators wish. Owner: gateway."""

from typing import Literal

from pydantic import JsonValue

from schemas.base import Event
from schemas.ids import ClusterId, JobId, NodeId, TenantId
from schemas.workload.parts import Demand, Work


class RequestSubmitted(Event):
    """A user wished a job. Key: job."""

    job: JobId
    tenant: TenantId
    name: str
    queue: str
    priority: int
    demand: Demand
    work: Work
    retries: int
    labels: dict[str, str]
    digest: str
    submitted_by: str


class RequestWithdrawn(Event):
    """A user wished a job away. Key: job; version follows the submission's."""

    job: JobId
    tenant: TenantId
    withdrawn_by: str
    message: str = ""


class RequestApplied(Event):
    """A Queue, GpuClass or Cluster document was declared. Key: the document's id; version: its generation."""

    kind: Literal["Queue", "GpuClass", "Cluster"]
    tenant: TenantId | None
    name: str
    document: dict[str, JsonValue]
    applied_by: str


class RequestOrdered(Event):
    """An operator ordered a node out of or back into service. Key: the order's id. Scope: the cluster."""

    order: Literal["cordon", "drain", "uncordon"]
    cluster: ClusterId
    node: NodeId
    owner: str
    reason: str
    session: str
