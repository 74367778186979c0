"""kind: Queue."""

from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.spec.base import API_VERSION, Metadata, Name, Written


class Quota(Written):
    """A queue's own share of one class, in devices."""

    gpu_class: Name = Field(alias="class")
    nominal: int = Field(ge=0, le=10_000_000)


class Preemption(Written):
    """Whose jobs may be ended for a job of this queue that does not fit.

    withinQueue: Never, or LowerPriority: those of the same queue that have lower priority; they are queued again.
    """

    within_queue: Literal["Never", "LowerPriority"] = "Never"


class QueueSpec(Written):
    """Order of admission, quotas by class, and preemption.

    StrictFIFO: nobody passes a job that waits. BestEffortFIFO: a job that does not fit lets smaller ones pass.
    """

    order: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    quotas: tuple[Quota, ...] = Field(min_length=1, max_length=64)
    preemption: Preemption = Preemption()

    @model_validator(mode="after")
    def _a_class_once(self) -> Self:
        names = [quota.gpu_class for quota in self.quotas]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"class {twice[0]} has two quotas; write one")
        return self


class Queue(Written):
    """A tenant's queue."""

    api_version: Literal["triplane/v1"] = API_VERSION
    kind: Literal["Queue"] = "Queue"
    metadata: Metadata
    spec: QueueSpec
