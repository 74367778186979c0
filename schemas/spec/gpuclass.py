"""kind: GpuClass."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from schemas.spec.base import API_VERSION, Metadata, Written
from schemas.units import parse_money


def _price(text: str) -> str:
    parse_money(text)
    return text


class Match(Written):
    """Which devices are of the class: those of this model, as NVML names it."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=256)]


class GpuClassSpec(Written):
    """What the class matches and what an hour of one device costs."""

    match: Match
    price_per_hour: Annotated[str, AfterValidator(_price)] = "0.00 USD"

    def price(self) -> tuple[int, str]:
        """Return (micros per hour, currency)."""
        return parse_money(self.price_per_hour)


class GpuClass(Written):
    """A kind of device that queues have quota of. Fleet-wide: it has no tenant."""

    api_version: Literal["triplane/v1"] = API_VERSION
    kind: Literal["GpuClass"] = "GpuClass"
    metadata: Metadata
    spec: GpuClassSpec = Field()
