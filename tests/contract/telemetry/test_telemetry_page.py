"""The page of telemetry names every number that a service shows, and no other; names follow Prometheus."""

import importlib
import re
from pathlib import Path

import pytest

from libs.config import Infrastructure
from libs.service import Service
from schemas.catalog import SERVICES

PAGE = (Path(__file__).parents[3] / "docs" / "telemetry.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"^# TYPE (triplane_\w+) (\w+)$", re.MULTILINE)
COUNTED = (
    "devices",
    "jobs",
    "runs",
    "parts",
    "gangs",
    "facts",
    "messages",
    "connections",
    "streams",
    "seconds",
    "bytes",
)
STATES = ("triplane_info", "triplane_ready", "triplane_placement_pending_attempts")
NOUNS = ("triplane_health_open_incidents", "triplane_health_open_drains", "triplane_drift")


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("CLUSTER", "demo"), ("NODE", "n1"), ("DEVICES", "1")):
        monkeypatch.setenv(f"TRIPLANE_AGENT_{name}", value)


def a_service(name: str) -> Service:
    """Return a service that is not started, as its process builds it."""
    settings = importlib.import_module(f"services.{name}.settings").Settings()
    service: Service = importlib.import_module(f"services.{name}.app").build(Infrastructure(), settings)
    return service


async def shown() -> dict[str, str]:
    """Return all names that services show, each with its type."""
    texts = [(await a_service(name).metrics.text()).decode() for name in SERVICES]
    return {name: kind for text in texts for name, kind in SHOWN.findall(text)}


async def test_the_page_names_every_number_and_no_other() -> None:
    rows = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `triplane_")]
    named = {name for row in rows for name in re.findall(r"`(triplane_\w+)`", row)}
    assert named == set(await shown())


async def test_names_end_with_their_unit_and_counters_with_total() -> None:
    for name, kind in (await shown()).items():
        assert name.endswith("_total") == (kind == "counter"), name
        unit = name.removesuffix("_total").rpartition("_")[2]
        assert kind == "counter" or unit in COUNTED or name in STATES + NOUNS, name


async def test_services_agree_on_the_type_of_a_name() -> None:
    texts = [(await a_service(name).metrics.text()).decode() for name in SERVICES]
    kinds: dict[str, set[str]] = {}
    for name, kind in (pair for text in texts for pair in SHOWN.findall(text)):
        kinds.setdefault(name, set()).add(kind)
    assert [name for name, found in kinds.items() if len(found) > 1] == []
