"""The servers and services of `docker-compose.yml` as processes: its configuration and environments, no containers."""

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from deploy.compose.__main__ import main
from deploy.embedded import binaries, children
from deploy.embedded.foundation import Foundation
from tests.support.containers import ROOT, compose, image
from tests.support.eventually import eventually
from tests.support.servers import lay_servers

STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ComposeStack:
    """Servers at work on loopback ports, with the folder that the tool has written."""

    folder: Path
    laid: Foundation  # gives ports, folders and the way to run Postgres as root; its own configuration is not used

    @property
    def ports(self) -> Mapping[str, int]:
        """Where each server listens on 127.0.0.1."""
        return {"nats": self.laid.nats.port, "redis": self.laid.redis.port, "postgres": self.laid.postgres.port}

    def text(self, name: str) -> str:
        """A file of the folder, with the servers' names in it replaced by where they are here."""
        text = (self.folder / name).read_text(encoding="utf-8")
        for server, port in (("nats", 4222), ("redis", 6379), ("postgres", 5432)):
            text = text.replace(f"{server}:{port}", f"127.0.0.1:{self.ports[server]}")
        return text

    def environment(self, service: str) -> dict[str, str]:
        """What a service's container is told: by the image, by the compose file, by its secret."""
        told = dict(word.split("=", 1) for each in image().all("ENV") for word in each.arguments)
        told |= {name: str(value) for name, value in compose()["services"][service]["environment"].items()}
        told |= {"TRIPLANE_NATS_URL": f"nats://127.0.0.1:{self.ports['nats']}", "PATH": os.environ["PATH"]}
        lines = self.text(f"{service}.env").splitlines()
        return told | dict(word.split("=", 1) for line in lines for word in shlex.split(line))

    def psql(self, *arguments: str, password: str, user: str, database: str = "triplane") -> tuple[int, str]:
        """Run psql on the stack's Postgres; return its exit code and output."""
        quiet = ["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]
        return self.run("psql", *quiet, "-d", database, *arguments, user=user, password=password)

    def run(self, program: str, *arguments: str, user: str, password: str) -> tuple[int, str]:
        """Run a client program of Postgres on the stack's; return its exit code and output."""
        place = ["-h", "127.0.0.1", "-p", str(self.ports["postgres"]), "-U", user]
        done = subprocess.run(
            [str(binaries.postgres(program)), *place, *arguments],
            env={"PGPASSWORD": password},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.strip() + done.stderr.strip()


@asynccontextmanager
async def compose_stack(root: Path) -> AsyncIterator[ComposeStack]:
    """Have the three servers at work inside, on what `python -m deploy.compose` writes."""
    assert main(["--folder", str(root / "compose")]) == 0
    stack = ComposeStack(root / "compose", lay_servers(root / "state").foundation)
    running = [await _start_postgres(stack), _start_nats(stack), _start_redis(stack)]
    try:
        yield stack
    finally:
        await asyncio.gather(*(children.end_child(child, STOP_SECONDS) for child in running))


async def _start_postgres(stack: ComposeStack) -> children.Child:
    """Start an empty server, as the image does, and furnish it as the image does."""
    await stack.laid.postgres.prepare()
    child = children.spawn(stack.laid.folder, "postgres", stack.laid.postgres.program())
    await eventually(stack.laid.postgres.answers, seconds=60)
    operator = await stack.laid.postgres.connect("postgres")
    await operator.execute("CREATE DATABASE triplane")
    await operator.close()
    return child


def _start_nats(stack: ComposeStack) -> children.Child:
    told = json.loads((stack.folder / "nats.conf").read_text(encoding="utf-8"))
    told |= {"listen": f"127.0.0.1:{stack.ports['nats']}", "http": "127.0.0.1:-1"}
    told["jetstream"]["store_dir"] = str(stack.laid.folder.data("nats"))
    written = stack.laid.folder.data("nats") / "nats.conf"
    written.write_text(json.dumps(told), encoding="utf-8")
    return children.spawn(
        stack.laid.folder, "nats", children.Program([str(binaries.nats_server()), "-c", str(written)])
    )


def _start_redis(stack: ComposeStack) -> children.Child:
    place = ["--port", str(stack.ports["redis"]), "--bind", "127.0.0.1", "--dir", str(stack.laid.folder.data("redis"))]
    arguments = [str(binaries.redis_server()), str(stack.folder / "redis.conf"), *place]
    return children.spawn(stack.laid.folder, "redis", children.Program(arguments))


@dataclass(frozen=True, slots=True)
class Life:
    """One service at work as its image would run it."""

    service: str
    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    def is_ready(self) -> bool:
        """Return whether it can do its work, now."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def is_healthy(self) -> bool:
        """Ask as the image asks; return whether it is well."""
        told = {**os.environ, "TRIPLANE_HEALTH_PORT": str(self.port)}
        asked = subprocess.run(image().only("HEALTHCHECK").listed, env=told, capture_output=True, check=False)
        return asked.returncode == 0


@asynccontextmanager
async def at_work(stack: ComposeStack, services: Sequence[str], root: Path) -> AsyncIterator[list[Life]]:
    """Have these services at work inside; they are asked to stop afterwards."""
    lives = [_begin(stack, service, root) for service in services]
    try:
        yield lives
    finally:
        for life in lives:
            life.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*(asyncio.to_thread(life.process.wait, STOP_SECONDS) for life in lives))


def _begin(stack: ComposeStack, service: str, root: Path) -> Life:
    port = _free_port()
    told = {**stack.environment(service), "TRIPLANE_HEALTH_PORT": str(port)}
    if service == "gateway":
        told |= {"TRIPLANE_GATEWAY_HOST": "127.0.0.1", "TRIPLANE_GATEWAY_PORT": "0"}
    if service == "agent":
        told |= {"TRIPLANE_AGENT_RUNTIME_DIR": str(root / "runtime")}
    log = root / f"{service}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", f"services.{service}"], cwd=ROOT, env=told, stdout=output, stderr=output
        )
    return Life(service, process, port, log)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
