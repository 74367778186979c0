"""The documents users write, one module a kind; the only definition of that dialect."""

from typing import Final

from schemas.spec.cluster import Cluster
from schemas.spec.gpuclass import GpuClass
from schemas.spec.job import Job
from schemas.spec.queue import Queue

Document = Job | Queue | GpuClass | Cluster
KINDS: Final[dict[str, type[Job] | type[Queue] | type[GpuClass] | type[Cluster]]] = {
    "Job": Job,
    "Queue": Queue,
    "GpuClass": GpuClass,
    "Cluster": Cluster,
}
