"""Billing's settings, from the environment: ``TRIPLANE_BILLING_*``."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The numbers billing works by."""

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_BILLING_")

    settle_seconds: float = Field(
        default=5.0, ge=0
    )  # a price said at the same time by another service is heard by then
    rate_seconds: float = Field(default=2.0, gt=0)  # how late after that usage may be said
    rate_parts: int = Field(default=500, ge=1)  # parts a turn, so that it stays short
    waiting_seconds: float = Field(default=600.0, gt=0)  # longer than any restart: then somebody should look
