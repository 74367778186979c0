"""Audit's settings, from the environment: ``TRIPLANE_AUDIT_*``."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The numbers audit works by."""

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_AUDIT_")

    page_entries: int = Field(default=1_000, ge=1)  # more than a person reads; a program asks for the next page
