"""What every service is told about its surroundings, by environment variables alone."""

from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Infrastructure(BaseSettings):
    """The servers a service talks to, and how it shows itself. ``TRIPLANE_NATS_URL`` and so on; empty is unset."""

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_", frozen=True, extra="ignore", env_ignore_empty=True)

    nats_url: str = "nats://127.0.0.1:4222"  # several servers of one cluster are parted by commas
    nats_user: str | None = None
    nats_password: SecretStr | None = None
    stream_replicas: int = Field(default=1, ge=1, le=5)  # 3 on a NATS cluster of three
    stream_bytes: int = Field(default=1 << 30, ge=1 << 20)  # of each stream; JetStream sets them aside at once
    ack_wait_seconds: float = Field(default=30.0, gt=0)  # three times the longest turn; then a crash is assumed
    postgres_dsn: SecretStr = SecretStr("postgresql://127.0.0.1:5432/triplane")  # with the service's own role
    redis_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    health_host: str = "127.0.0.1"
    health_port: int = Field(default=0, ge=0, le=65_535)  # 0: any free port, said in the log
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "text"] = "json"
    otlp_endpoint: str | None = None  # where spans go by OTLP over HTTP, such as http://collector:4318; None: nowhere
    trace_ratio: float = Field(default=1.0, ge=0, le=1)  # of the jobs whose spans are sent; the same for all services
