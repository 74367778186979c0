"""Which services and agents a stack has, and what each is told."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deploy.embedded import fleet, wiring
from deploy.embedded.foundation import Foundation
from deploy.embedded.ports import HEALTH
from deploy.embedded.posts import Post
from deploy.embedded.runtime import make_runtime_folder
from deploy.embedded.state import StateFolder
from schemas.catalog import SERVICES
from schemas.spec import Document

AGENT, GATEWAY = "agent", "gateway"


@dataclass(frozen=True, slots=True)
class Staff:
    """The service of each post, and what each agent is told by the name of its post."""

    services: Mapping[str, str] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def port_names(self) -> list[str]:
        """Return the names under which ports are settled: the gateway's own, and everybody's health endpoints."""
        health = [f"{post}{HEALTH}" for post in (*self.services, *self.agents)]
        return [GATEWAY, *health] if self.services else []


def wanted(folder: StateFolder, documents: Iterable[Document], replicas: Mapping[str, int]) -> Staff:
    """Return everybody these documents of a fleet ask for, and make room for the agents. Raises StackError.

    ``replicas``: how many of a service there are, where it is not one.
    """
    make_runtime_folder(folder)
    services = {post: name for name in SERVICES if name != AGENT for post in _names(name, replicas.get(name, 1))}
    return Staff(services, fleet.agents(folder, documents))


def posts(foundation: Foundation, staff: Staff, ports: Mapping[str, int]) -> list[Post]:
    """Return a post for each of them."""
    told = {GATEWAY: _gateway(foundation, ports.get(GATEWAY, 0))}
    work = [(name, service, told.get(name, {})) for name, service in staff.services.items()]
    work += [(name, AGENT, values) for name, values in staff.agents.items()]
    return [
        Post(name, service, wiring.infrastructure(foundation, service, ports[f"{name}{HEALTH}"]), values)
        for name, service, values in work
    ]


def _names(service: str, replicas: int) -> list[str]:
    return [service, *(f"{service}-{number}" for number in range(2, replicas + 1))]


def _gateway(foundation: Foundation, port: int) -> Mapping[str, object]:
    return {"port": port, "admin_token": foundation.credentials.admin_token}
