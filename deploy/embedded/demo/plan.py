"""What the demonstration submits, and how each job has to end."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded import fleet
from schemas.spec.job import Job
from schemas.spec.queue import Queue

HERE = Path(__file__).parent
FLEET, QUEUES = HERE / "fleet.yaml", HERE / "queues.yaml"
JOBS = tuple(HERE / f"{tenant}.yaml" for tenant in ("research", "product", "teaching"))
DEVICES = 32
CANCELLED = "endless"  # by hand, once it runs
TOO_LARGE = "moonshot"  # no node has nine devices: it waits, with a reason, until it is withdrawn
TOO_LARGE_CODE = "CanNeverFit"
WAITS_CODE = "WaitingForQuota"  # told to jobs that come while their queue's quota is in use; they run later


@dataclass(frozen=True, slots=True)
class Ending:
    """The last word about a job."""

    state: str
    attempt: int = 1
    exit_code: int | None = 0


ODD = {
    "canary": Ending("Failed", exit_code=3),
    "flaky": Ending("Succeeded", attempt=2),
    CANCELLED: Ending("Cancelled", exit_code=None),
    TOO_LARGE: Ending("Cancelled", exit_code=None),
}


def jobs(working_folder: Path) -> list[Job]:
    """Return the jobs of all tenants, with the folder where their script is."""
    documents = [document for path in JOBS for document in fleet.read(path.read_text(), path.name)]
    found = [document for document in documents if isinstance(document, Job)]
    return [_in_folder(job, working_folder) for job in found]


def quotas() -> Mapping[tuple[str, str], int]:
    """Return the devices of each queue, by tenant and name."""
    queues = [each for each in fleet.read(QUEUES.read_text(), QUEUES.name) if isinstance(each, Queue)]
    return {
        (queue.metadata.tenant or "", queue.metadata.name): sum(quota.nominal for quota in queue.spec.quotas)
        for queue in queues
    }


def ending(job: str) -> Ending:
    """Return how a job has to end."""
    return ODD.get(job, Ending("Succeeded"))


def _in_folder(job: Job, folder: Path) -> Job:
    return job.model_copy(update={"spec": job.spec.model_copy(update={"workdir": str(folder)})})
