"""Health's settings, from the environment: ``TRIPLANE_HEALTH_*``."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.health.core import Policy


class Settings(BaseSettings):
    """The numbers health works by."""

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_HEALTH_")

    stale_seconds: int = Field(default=30, ge=1)  # three heartbeats
    lost_seconds: int = Field(default=300, ge=1)  # a reboot takes less
    fleet_silent_percent: int = Field(default=30, ge=1, le=100)  # more at once: we are deaf
    fleet_silent_nodes: int = Field(default=3, ge=1)  # fewer can be a coincidence
    settle_seconds: int = Field(default=5, ge=0)  # a grant made just before the mark is heard by then
    watch_seconds: float = Field(default=2.0, gt=0)  # how late silence or an empty node may be noticed
    sweep_seconds: float = Field(default=60.0, gt=0)  # then a fact that inventory did not answer is said again

    def policy(self) -> Policy:
        """Return the numbers the core decides by."""
        return Policy(
            stale_seconds=self.stale_seconds,
            lost_seconds=self.lost_seconds,
            fleet_silent_percent=self.fleet_silent_percent,
            fleet_silent_nodes=self.fleet_silent_nodes,
            settle_seconds=self.settle_seconds,
        )
