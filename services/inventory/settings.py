"""Inventory's settings, from the environment: ``TRIPLANE_INVENTORY_*``."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.inventory.core import Policy


class Settings(BaseSettings):
    """The numbers inventory works by."""

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_INVENTORY_")

    stale_seconds: int = Field(default=30, ge=1)  # three heartbeats
    retire_seconds: int = Field(default=30, ge=0)  # placement hears the mark and a grant on its way is heard before
    watch_seconds: float = Field(default=2.0, gt=0)  # how late silence and retirement may be noticed
    move_seconds: float = Field(default=1.0, gt=0)  # what is due by its time; each step wakes the next
    move_call_seconds: float = Field(default=5.0, gt=0)  # an agent looks at its devices in less
    move_again_seconds: float = Field(default=10.0, gt=0)  # the longest pause of a move that waits
    move_escalate_seconds: int = Field(default=300, ge=1)  # a reboot takes less
    census_seconds: float = Field(default=60.0, gt=0)  # how often the fleet's numbers go to the log, when they changed

    def policy(self) -> Policy:
        """Return the numbers the core decides by."""
        return Policy(
            stale_seconds=self.stale_seconds,
            retire_seconds=self.retire_seconds,
            escalate_seconds=self.move_escalate_seconds,
        )
