"""Each import contract is broken on purpose in a small tree of its own, so that none can pass by mistake."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from schemas.catalog import SERVICES
from tests.tidy import tree

LINTER = Path(sys.executable).with_name("lint-imports")
MODULES = [
    "schemas/workload.py",
    "libs/errors.py",
    "libs/log.py",
    "libs/bus/turn.py",
    "libs/client/jobs.py",
    "libs/leases/client.py",
    "libs/orchestrators/local.py",
    "libs/pg/pool.py",
    "libs/resources/span.py",
    "libs/telemetry/metrics.py",
    "cli/main.py",
    "deploy/embedded/stack.py",
    "services/agent/shim.py",
    *(f"services/{s}/{m}.py" for s in SERVICES for m in ("__main__", "app", "handlers", "store", "settings", "core")),
    *(f"services/{s}/migrations/versions/0001_first.py" for s in SERVICES),
]


@dataclass(frozen=True)
class Break:
    contract: str
    module: str
    line: str


PLANES = "Schemas, then libs, then services"
STRANGERS = "Services never import each other"
BONES = "Inside a service: core, settings, store, handlers, app, main"
CORES = "Cores stand on schemas and resources alone"
PURE = "Resources are pure"
COMMAND = "The command stands on schemas and the client alone"
DEPLOYMENT = "Nothing imports a way to run it"
SHIM = "The shim needs nothing but Python"
BACKENDS = "Backend drivers have one door: libs.orchestrators"
POSTGRES = "Postgres has one door: libs.pg"
REDIS = "Redis has one door: libs.leases"
TELEMETRY = "Telemetry has one door: libs.telemetry"
BUS = "NATS has one door: libs.bus, and services' apps and handlers"

BREAKS = [
    Break(PLANES, "schemas/workload.py", "import libs.errors"),
    Break(PLANES, "libs/log.py", "import services.billing.settings"),
    *(Break(STRANGERS, f"services/{s}/store.py", f"import services.{t}.core") for s, t in pairwise(SERVICES)),
    *(Break(BONES, f"services/{s}/core.py", f"import services.{s}.store") for s in SERVICES),
    Break(BONES, "services/billing/core.py", "import services.billing.settings"),
    Break(BONES, "services/billing/store.py", "import services.billing.handlers"),
    Break(BONES, "services/billing/handlers.py", "import services.billing.app"),
    Break(BONES, "services/billing/app.py", "import services.billing.__main__"),
    Break(BONES, "services/billing/models.py", ""),
    Break(CORES, "services/billing/core.py", "import libs.pg.pool"),
    Break(CORES, "services/billing/core.py", "import libs.log"),
    Break(CORES, "services/billing/core.py", "import logging"),
    Break(CORES, "services/billing/core.py", "import random"),
    Break(PURE, "libs/resources/span.py", "import libs.log"),
    Break(PURE, "libs/resources/span.py", "import time"),
    Break(COMMAND, "cli/main.py", "import libs.bus.turn"),
    Break(COMMAND, "cli/main.py", "import services.gateway.settings"),
    Break(COMMAND, "cli/main.py", "import deploy.embedded.stack"),
    Break(DEPLOYMENT, "libs/log.py", "import deploy.embedded"),
    Break(DEPLOYMENT, "services/gateway/app.py", "import deploy.embedded.stack"),
    Break(SHIM, "services/agent/shim.py", "import libs.errors"),
    Break(SHIM, "services/agent/shim.py", "import schemas.workload"),
    Break(SHIM, "services/agent/shim.py", "import services.agent.core"),
    Break(SHIM, "services/agent/shim.py", "import pydantic"),
    *(Break(BACKENDS, "libs/bus/turn.py", f"import {driver}") for driver in ("kubernetes", "pyslurm", "ray")),
    Break(BACKENDS, "services/dispatch/handlers.py", "import ray"),
    Break(POSTGRES, "libs/bus/turn.py", "import asyncpg"),
    Break(POSTGRES, "services/billing/handlers.py", "import asyncpg"),
    Break(POSTGRES, "services/billing/store.py", "import sqlalchemy"),
    Break(REDIS, "services/placement/store.py", "import redis.asyncio"),
    Break(REDIS, "libs/pg/pool.py", "import redis"),
    Break(BUS, "services/placement/store.py", "import nats"),
    Break(BUS, "libs/pg/pool.py", "import faststream"),
    Break(TELEMETRY, "libs/bus/turn.py", "import opentelemetry.trace"),
    Break(TELEMETRY, "services/billing/handlers.py", "import prometheus_client"),
]
ALLOWED = {
    "cli/main.py": "import libs.client.jobs, schemas.workload",
    "libs/bus/turn.py": "import nats, faststream.nats",
    "libs/leases/client.py": "import redis.asyncio",
    "libs/orchestrators/local.py": "import kubernetes, ray, pyslurm",
    "libs/pg/pool.py": "import asyncpg, alembic, sqlalchemy",
    "libs/resources/span.py": "import numpy, libs.errors",
    "libs/telemetry/metrics.py": "import opentelemetry.trace, prometheus_client",
    "services/agent/shim.py": "import fcntl, json, os, socket",
    "services/billing/app.py": "import nats, services.billing.handlers, services.billing.settings",
    "services/billing/core.py": "import libs.errors, libs.resources.span, schemas.workload, numpy",
    "services/billing/handlers.py": "import nats, services.billing.store",
    "services/billing/migrations/versions/0001_first.py": "import alembic, libs.pg.pool, sqlalchemy",
    "services/billing/store.py": "import asyncpg, services.billing.core, services.billing.settings",
    "deploy/embedded/stack.py": "import asyncpg, libs.pg.pool, nats, services.gateway.app",
}


def lay(root: Path) -> Path:
    """Lay a tree with the same bones and contracts as the real one, where all that is allowed is done."""
    shutil.copy(tree.ROOT / ".importlinter", root)
    for name in MODULES:
        module = root / name
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(ALLOWED.get(name, "") + "\n")
    folders = {
        parent for name in MODULES for parent in (root / name).parents if parent.is_relative_to(root) and parent != root
    }
    for folder in folders:
        (folder / "__init__.py").touch()
    return root


def broken_contracts(root: Path) -> tuple[int, set[str]]:
    """Return the linter's exit status and the names of the contracts that it found broken."""
    ended = subprocess.run([LINTER, "--no-cache", "--no-logo"], cwd=root, capture_output=True, text=True, check=False)
    broken = {line.partition(" BROKEN")[0] for line in ended.stdout.splitlines() if " BROKEN" in line}
    assert "Contracts: " in ended.stdout, ended.stdout + ended.stderr
    return ended.returncode, broken


@pytest.mark.parametrize("fault", BREAKS, ids=lambda fault: f"{fault.module}: {fault.line or 'is there'}")
def test_a_broken_contract_is_named(fault: Break, tmp_path: Path) -> None:
    module = lay(tmp_path) / fault.module
    module.write_text(f"{fault.line}\n")
    status, broken = broken_contracts(tmp_path)
    assert (status, fault.contract in broken) == (1, True), broken


def test_what_is_allowed_breaks_nothing(tmp_path: Path) -> None:
    assert broken_contracts(lay(tmp_path)) == (0, set())


def test_every_contract_is_broken_once() -> None:
    lines = (tree.ROOT / ".importlinter").read_text(encoding="utf-8").splitlines()
    names = {line.removeprefix("name = ") for line in lines if line.startswith("name = ")}
    assert names == {fault.contract for fault in BREAKS}


def test_every_service_of_this_tree_is_under_the_contracts() -> None:
    services = {place.parts[1] for place, _ in tree.modules("services") if len(place.parts) > 2}
    assert services == set(SERVICES)


def test_this_tree_breaks_no_contract() -> None:
    assert broken_contracts(tree.ROOT) == (0, set())
