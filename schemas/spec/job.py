"""kind: Job."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from schemas.spec.base import API_VERSION, Cpu, Duration, Memory, Metadata, Name, Written
from schemas.units import format_duration
from schemas.workload import Demand, Work

PRIORITIES: Final = {"low": -100, "normal": 0, "high": 100, "critical": 1_000}
MAX_DEVICES: Final = 100_000
MAX_RECOVERY_SECONDS: Final = 86_400  # what is held that long serves nobody
Text = Annotated[str, StringConstraints(min_length=1, max_length=32_768)]
EnvValue = Annotated[str, StringConstraints(max_length=32_768)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


class Topology(Written):
    """Where the gang may be: inside one domain of a level (required), or rather so (preferred)."""

    required: Name | None = None
    preferred: Name | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.required is None) == (self.preferred is None):
            raise ValueError("write either required or preferred, with the name of a topology level such as rack")
        return self


class JobSpec(Written):
    """The gang, what it needs and what every replica runs."""

    queue: Name
    priority_class: Literal["low", "normal", "high", "critical"] = "normal"
    classes: tuple[Name, ...] = Field(default=(), max_length=16)
    replicas: int = Field(default=1, ge=1, le=100_000)
    min_replicas: int | None = Field(default=None, ge=1)
    devices_per_replica: int = Field(ge=1, le=1_024)
    cpu_per_replica: Cpu = 0
    memory_per_replica: Memory = 0
    topology: Topology | None = None
    time_limit: Duration | None = None
    recovery_timeout: Duration | None = None
    grace: Duration = 30
    retries: int = Field(default=0, ge=0, le=100)
    workdir: Text | None = None
    env: dict[EnvName, EnvValue] = Field(default_factory=dict, max_length=1_024)
    command: tuple[Text, ...] = Field(min_length=1, max_length=1_024)

    @field_validator("recovery_timeout")
    @classmethod
    def _recovery_is_bounded(cls, seconds: int | None) -> int | None:
        if seconds is not None and not 1 <= seconds <= MAX_RECOVERY_SECONDS:
            raise ValueError(f"{format_duration(seconds)} is not from 1s to 24h; leave it out to hold nothing")
        return seconds

    @model_validator(mode="after")
    def _gang_is_possible(self) -> Self:
        if self.min_replicas is not None and self.min_replicas != self.replicas:
            raise ValueError("minReplicas must equal replicas: elastic gangs are not offered")
        if self.replicas * self.devices_per_replica > MAX_DEVICES:
            raise ValueError(f"replicas x devicesPerReplica is over {MAX_DEVICES}")
        if self.time_limit == 0:
            raise ValueError("timeLimit must be at least 1s; leave it out for no limit")
        return self

    def demand(self) -> Demand:
        """Return what one attempt needs."""
        topology = self.topology
        return Demand(
            classes=self.classes,
            replicas=self.replicas,
            min_replicas=self.min_replicas or self.replicas,
            devices_per_replica=self.devices_per_replica,
            cpu_milli_per_replica=self.cpu_per_replica,
            memory_mib_per_replica=self.memory_per_replica,
            topology_level=(topology.required or topology.preferred) if topology else None,
            topology_required=bool(topology and topology.required),
            recovery_seconds=self.recovery_timeout,
        )

    def work(self) -> Work:
        """Return what every replica runs."""
        return Work(
            command=self.command,
            env=self.env,
            workdir=self.workdir,
            time_limit_seconds=self.time_limit,
            grace_seconds=self.grace,
        )


class Job(Written):
    """A job: tenant and name are the client's key."""

    api_version: Literal["triplane/v1"] = API_VERSION
    kind: Literal["Job"] = "Job"
    metadata: Metadata
    spec: JobSpec
