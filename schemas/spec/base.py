"""What users write: Kubernetes' envelope and camelCase. Unknown fields are errors."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints
from pydantic.alias_generators import to_camel

from schemas.units import format_duration, parse_cpu, parse_duration, parse_memory

API_VERSION: Final = "triplane/v1"
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Tenant = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")]
Label = Annotated[str, StringConstraints(max_length=128)]


def _seconds(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


def _cpu_milli(value: Any) -> Any:
    return parse_cpu(str(value)) if type(value) is int and value >= 0 else _said(value, parse_cpu)


def _memory_mib(value: Any) -> Any:
    return parse_memory(f"{value}Mi") if type(value) is int and value >= 0 else _said(value, parse_memory)


def _said(value: Any, parse: Callable[[str], int]) -> Any:
    return parse(value) if isinstance(value, str) else value


def _cpu_text(milli: int) -> str:
    return str(milli // 1_000) if milli % 1_000 == 0 else f"{milli}m"


Duration = Annotated[
    int, BeforeValidator(_seconds), Field(ge=0, le=366 * 86_400), PlainSerializer(format_duration, return_type=str)
]
"""A duration in seconds; written ``30s``, ``15m``, ``2h``, ``3d``, or as a bare number."""
Cpu = Annotated[int, BeforeValidator(_cpu_milli), Field(ge=0), PlainSerializer(_cpu_text, return_type=str)]
"""Thousandths of a CPU; written ``4`` or ``500m``."""
Memory = Annotated[int, BeforeValidator(_memory_mib), Field(ge=0), PlainSerializer(lambda m: f"{m}Mi", return_type=str)]
"""MiB; written ``64Gi``."""


class Written(BaseModel):
    """A piece of a document: camelCase outside, frozen, strict about unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )


class Metadata(Written):
    """Name (and for tenants' documents the tenant, which defaults to the token's) and free labels."""

    name: Name
    tenant: Tenant | None = None
    labels: dict[Label, Label] = Field(default_factory=dict, max_length=64)
