"""A gateway at work on real servers, and who asks it."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import SecretStr

from services.gateway.app import build
from services.gateway.settings import Settings
from tests.support.servers import Servers
from tests.support.wire import Wire, wire

ADMIN = "administrator-of-the-test"
FLEET = """\
apiVersion: triplane/v1
kind: Cluster
metadata: {name: demo}
spec: {backend: local, nodes: [{name: n1, devices: 8, model: H100, place: {rack: r1}}]}
---
apiVersion: triplane/v1
kind: GpuClass
metadata: {name: h100}
spec: {match: {model: H100}, pricePerHour: "2.50 USD"}
---
apiVersion: triplane/v1
kind: Queue
metadata: {name: main, tenant: acme}
spec: {quotas: [{class: h100, nominal: 16}]}
---
apiVersion: triplane/v1
kind: Queue
metadata: {name: mine, tenant: zoo}
spec: {quotas: [{class: h100, nominal: 64}]}
"""


def a_job(name: str = "train", *, queue: str = "main", devices: int = 1, tenant: str = "acme", more: str = "") -> str:
    """Return a job's document as people write it."""
    return (
        "apiVersion: triplane/v1\n"
        "kind: Job\n"
        f"metadata: {{name: {name}, tenant: {tenant}}}\n"
        f'spec: {{queue: {queue}, devicesPerReplica: {devices}, command: ["true"]{more}}}\n'
    )


@dataclass(frozen=True)
class Asking:
    """A gateway, the bus beside it, and an HTTP client for each who asks."""

    address: str
    line: Wire
    admin: httpx.AsyncClient

    def by(self, token: str) -> httpx.AsyncClient:
        """Return a client with this token."""
        return httpx.AsyncClient(base_url=self.address, headers={"Authorization": f"Bearer {token}"}, timeout=30)

    async def token(self, role: str, tenant: str, name: str = "ada") -> str:
        """Return a new token's secret."""
        answer = await self.admin.post("/v1/tokens", json={"name": name, "role": role, "tenant": tenant})
        assert answer.status_code == 201, answer.text
        secret: str = answer.json()["secret"]
        return secret

    async def submit(self, text: str, **query: Any) -> list[dict[str, Any]]:
        """Submit documents as the administrator and return the results."""
        answer = await self.admin.post("/v1/documents", content=text, params=query)
        assert answer.status_code == 200, answer.text
        results: list[dict[str, Any]] = answer.json()["results"]
        return results

    async def furnish(self) -> None:
        """Create tenants acme and zoo, a class, a cluster and a queue for each tenant."""
        for tenant in ("acme", "zoo"):
            await self.admin.post("/v1/tenants", json={"name": tenant})
        results = await self.submit(FLEET)
        assert [result["outcome"] for result in results] == ["created"] * 4, results


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def gateway(servers: Servers, **settings: Any) -> AsyncIterator[Asking]:
    """Run a gateway that admits the administrator."""
    port = free_port()
    chosen = Settings(port=port, admin_token=SecretStr(ADMIN), **settings)
    service = build(await servers.infrastructure("gateway"), chosen)
    address = f"http://127.0.0.1:{port}"
    async with wire(servers) as line:
        await service.start()
        try:
            async with httpx.AsyncClient(
                base_url=address, headers={"Authorization": f"Bearer {ADMIN}"}, timeout=30
            ) as admin:
                yield Asking(address, line, admin)
        finally:
            await service.stop()
