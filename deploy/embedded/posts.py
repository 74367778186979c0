"""Who has to be at work: every service once, and an agent for each node of the fleet."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from libs.config import Infrastructure


@dataclass(frozen=True, slots=True)
class Post:
    """One service at work. `name` is its log, its record and its health port's name; `told` its own settings."""

    name: str
    service: str
    infrastructure: Infrastructure
    told: Mapping[str, object] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """Where it answers /readyz on 127.0.0.1."""
        return self.infrastructure.health_port

    def environment(self) -> dict[str, str]:
        """Return the environment variables that tell a process of its own the same."""
        surroundings = {key: _plain(value) for key, value in self.infrastructure if value is not None}
        told = {f"{self.service}_{key}": _written(value) for key, value in self.told.items()}
        return {f"TRIPLANE_{key.upper()}": value for key, value in {**surroundings, **told}.items()}


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _written(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool | dict | list | tuple) else _plain(value)
