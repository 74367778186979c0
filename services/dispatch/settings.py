"""Dispatch's settings, from the environment: ``TRIPLANE_DISPATCH_*``."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The numbers dispatch works by."""

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_DISPATCH_")

    call_seconds: float = Field(default=5.0, gt=0)  # what takes a destination longer is looked for before it is retried
    work_seconds: float = Field(default=0.5, gt=0)  # how late a retry may be noticed; new work wakes the loop
    look_seconds: float = Field(default=10.0, gt=0)  # how long a lost notice may stay unnoticed
    apart_seconds: float = Field(default=1.0, ge=0)  # a node is asked what became of its runs no more often
    vanished_seconds: float = Field(default=60.0, ge=0)  # two "not found" so far apart make a result unknown
    sweep_seconds: float = Field(default=60.0, gt=0)  # silence after which a result is said again
    batch_runs: int = Field(default=200, ge=1)  # runs of one turn, so that a turn stays short
