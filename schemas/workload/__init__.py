"""Facts of the workload plane: what users wish, what admission decides, what placement grants, how runs go."""

from schemas.workload.grant import (
    GrantConfirmed,
    GrantIssued,
    GrantRefused,
    GrantReleased,
    GrantRevoked,
    GrantSuspected,
    ReleaseProof,
)
from schemas.workload.job import (
    JobAdmitted,
    JobCancelled,
    JobEvicted,
    JobFinished,
    JobHeld,
    JobQueued,
    JobQuotaReserved,
    JobRejected,
    JobRequeued,
    Outcome,
)
from schemas.workload.parts import Demand, ExitRecord, GrantedDevice, GrantPart, RankExit, ReplicaSlot, Work
from schemas.workload.request import RequestApplied, RequestOrdered, RequestSubmitted, RequestWithdrawn
from schemas.workload.run import RunAccepted, RunFailed, RunLaunched, RunLost, RunStarted, RunStopped, RunSucceeded

__all__ = [
    "Demand",
    "ExitRecord",
    "GrantConfirmed",
    "GrantIssued",
    "GrantPart",
    "GrantRefused",
    "GrantReleased",
    "GrantRevoked",
    "GrantSuspected",
    "GrantedDevice",
    "JobAdmitted",
    "JobCancelled",
    "JobEvicted",
    "JobFinished",
    "JobHeld",
    "JobQueued",
    "JobQuotaReserved",
    "JobRejected",
    "JobRequeued",
    "Outcome",
    "RankExit",
    "ReleaseProof",
    "ReplicaSlot",
    "RequestApplied",
    "RequestOrdered",
    "RequestSubmitted",
    "RequestWithdrawn",
    "RunAccepted",
    "RunFailed",
    "RunLaunched",
    "RunLost",
    "RunStarted",
    "RunStopped",
    "RunSucceeded",
    "Work",
]
