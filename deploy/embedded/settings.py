"""Settings of the stack on one machine, from the environment (TRIPLANE_EMBEDDED_...)."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """How servers are chosen and how long their logs grow."""

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_EMBEDDED_", frozen=True)

    prefer_redis_on_path: bool = False  # a newer Redis of the machine instead of the wheel's
    log_bytes: int = 10 << 20  # one log; older ones are kept as .1 and .2
    log_look_seconds: float = 10.0  # between two looks at the logs' sizes
