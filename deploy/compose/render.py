"""What the servers and services of `docker-compose.yml` read, made from the credentials."""

import json
import shlex
from importlib.resources import files as packaged
from typing import Any, Final

from deploy.compose.credentials import OPERATOR, Credentials
from schemas.catalog import CALLS, SERVICES

MOST_STORE_BYTES: Final = 8 << 30  # of all streams together
MOST_PAYLOAD_BYTES: Final = 1 << 20
LEASES: Final = "~* &* +@read +@write +@scripting +@transaction +@connection +time +info -@dangerous -@admin"
EVERYTHING: Final = "~* &* +@all"
PROBE: Final = "user probe on >probe resetkeys resetchannels -@all +ping"  # no secret: all it may do is ask for life
ANSWERING: Final = frozenset(call.answered_by for call in CALLS)


def files(credentials: Credentials) -> dict[str, str]:
    """Return every file by its name."""
    return {
        "nats.conf": nats(credentials),
        "redis.conf": redis(credentials),
        "postgres.sql": postgres(credentials),
        "postgres_password": credentials.postgres[OPERATOR],
        "admin_token": credentials.admin_token,
        **{f"{service}.env": environment(service, credentials) for service in SERVICES},
    }


def nats(credentials: Credentials) -> str:
    """Return the server's configuration: one account, a user a service with the catalogue's rights."""
    permissions = json.loads(packaged("deploy").joinpath("nats/permissions.json").read_text(encoding="utf-8"))
    users = [_nats_user(user, password, permissions.get(user)) for user, password in credentials.nats.items()]
    settings = {
        "server_name": "triplane",
        "listen": "0.0.0.0:4222",
        "http": "127.0.0.1:8222",  # the container's own health check
        "max_payload": MOST_PAYLOAD_BYTES,
        "jetstream": {"store_dir": "/data", "max_file_store": MOST_STORE_BYTES},
        "accounts": {"TRIPLANE": {"jetstream": "enabled", "users": users}},
    }
    return json.dumps(settings, indent=1) + "\n"


def _nats_user(user: str, password: str, permissions: dict[str, Any] | None) -> dict[str, Any]:
    assert permissions is not None or user == OPERATOR, f"{user} has no permissions"
    if permissions is None:
        return {"user": user, "password": password}
    if user in ANSWERING:
        permissions = {**permissions, "allow_responses": True}
    return {"user": user, "password": password, "permissions": permissions}


def redis(credentials: Credentials) -> str:
    """Return the server's configuration: leases only, so nothing is kept on a disk."""
    users = [
        f"user {user} on >{password} {EVERYTHING if user == OPERATOR else LEASES}"
        for user, password in credentials.redis.items()
    ]
    lines = ["bind * -::*", "port 6379", "dir /tmp", 'save ""', "appendonly no", "user default off", PROBE, *users]
    return "\n".join(lines) + "\n"


def postgres(credentials: Credentials) -> str:
    """Return the statements that furnish the database."""
    passwords = {user: password for user, password in credentials.postgres.items() if user != OPERATOR}
    template = packaged("deploy").joinpath("compose/init.sql").read_text(encoding="utf-8")
    return template.replace("@PASSWORDS@", json.dumps(passwords))


def environment(service: str, credentials: Credentials) -> str:
    """Return the settings of a service that are secret, as lines for a shell."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in secrets_of(service, credentials).items())


def secrets_of(service: str, credentials: Credentials) -> dict[str, str]:
    """Return a service's own users and passwords, by the names of its settings."""
    told = {"TRIPLANE_NATS_USER": service, "TRIPLANE_NATS_PASSWORD": credentials.nats[service]}
    if password := credentials.postgres.get(service):
        told["TRIPLANE_POSTGRES_DSN"] = f"postgresql://triplane_{service}:{password}@postgres:5432/triplane"
    if password := credentials.redis.get(service):
        told["TRIPLANE_REDIS_URL"] = f"redis://{service}:{password}@redis:6379/0"
    if service == "gateway":
        told["TRIPLANE_GATEWAY_ADMIN_TOKEN"] = credentials.admin_token
    return told
