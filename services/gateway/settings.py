"""The gateway's settings, from the environment: ``TRIPLANE_GATEWAY_*``."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Where the gateway listens, who may enter first, and its bounds."""

    model_config = SettingsConfigDict(
        env_prefix="TRIPLANE_GATEWAY_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)  # 0: any free port, said in the log
    admin_token: SecretStr | None = None  # the installation's own token, with all rights; None: none is set up
    admin_token_file: Path | None = None  # the same, from a file
    default_tenant: str = "default"  # of fleet-wide tokens, where a document names no tenant

    sweep_seconds: float = Field(default=60.0, gt=0)  # three beats of silence before a fact is said again
    call_seconds: float = Field(default=5.0, gt=0)  # an agent or the audit that does not answer by then is away
    beat_seconds: float = Field(default=15.0, gt=0)  # a comment on idle event streams, so that proxies keep them
    body_seconds: float = Field(default=20.0, gt=0)  # a text of 1 MiB comes in less, or 408
    stuck_seconds: float = Field(default=10.0, gt=0)  # a reader that takes nothing for so long is cut
    poll_seconds: float = Field(default=1.0, gt=0)  # how late events of another gateway process may come
    stream_buffer: int = Field(default=1_000, ge=1)  # events that wait for one reader; beyond, it is cut
    streams: int = Field(default=500, ge=1)  # event streams at once
    requests: int = Field(default=1_000, ge=1)  # connections at once; beyond, 503
    events_kept: int = Field(default=1_000_000, ge=1)  # about a gigabyte
    days_kept: int = Field(default=30, ge=1)  # events and histories of ended jobs

    def administrator(self) -> str | None:
        """Return the secret of the installation's own token, if one is set."""
        if self.admin_token is not None:
            return self.admin_token.get_secret_value()
        return self.admin_token_file.read_text().strip() if self.admin_token_file is not None else None
