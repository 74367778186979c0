"""How runs go. Owner: dispatch."""

from datetime import datetime

from schemas.base import Event
from schemas.ids import ClusterId, GrantId, JobId, RunName, TenantId
from schemas.reasons import Reason


class RunLaunched(Event):
    """The destination was asked to start the run. Key of all run facts: run."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    cluster: ClusterId


class RunAccepted(Event):
    """The destination acknowledged the run: the job is Placed."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId


class RunStarted(Event):
    """Every part was claimed and its processes were seen. Once an attempt."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    started_at: datetime


class RunSucceeded(Event):
    """Every replica ended with code 0."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    ended_at: datetime


class RunFailed(Event):
    """The run ended otherwise; the reason's code says whose fault it is."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    exit_code: int | None
    reason: Reason
    ended_at: datetime


class RunStopped(Event):
    """The run was ended by us after a revocation."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason
    ended_at: datetime


class RunLost(Event):
    """The run's result is unknown; nothing is freed by this."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    reason: Reason
