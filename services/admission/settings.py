"""Admission's settings, from the environment: ``TRIPLANE_ADMISSION_*``."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.admission.core import Policy


class Settings(BaseSettings):
    """The numbers admission works by."""

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_ADMISSION_")

    backoff_seconds: int = Field(default=1, ge=0)  # first wait of an attempt that came home; doubles each time
    backoff_limit_seconds: int = Field(default=60, ge=0, le=3_600)  # a node that comes back is used within a minute
    placement_deadline_seconds: int = Field(default=600, ge=1)  # then the quota serves others; the job comes home
    preemption_seconds: int = Field(default=600, ge=1)  # how long room is held for whom others were ended
    sweep_seconds: float = Field(default=60.0, gt=0)  # three heartbeats of silence before a fact is said again
    clock_seconds: float = Field(default=1.0, gt=0)  # how late a backoff or deadline may be noticed
    scan_jobs: int = Field(default=500, ge=1)  # how deep a cycle looks into one queue, so that a turn stays short

    def policy(self) -> Policy:
        """Return the numbers the core decides by."""
        return Policy(
            backoff_seconds=self.backoff_seconds,
            backoff_limit_seconds=self.backoff_limit_seconds,
            placement_deadline_seconds=self.placement_deadline_seconds,
            preemption_seconds=self.preemption_seconds,
        )
