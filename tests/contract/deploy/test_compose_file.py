"""`docker-compose.yml`: valid, whole, hardened, and speaking of settings that exist."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deploy.compose.credentials import LEASING, STORED, Credentials, kept_or_new
from deploy.compose.render import files
from deploy.settings import groups, settings
from libs.bus.jetstream import FLUSH_SECONDS
from libs.service import DRAIN_SECONDS
from schemas.catalog import FACTS, SERVICES
from tests.support.containers import COMPOSE, ROOT, compose, image

SERVERS = ("nats", "redis", "postgres")
PLANES = {fact.owner: fact.plane for fact in FACTS} | {
    "audit": "ledger"
}  # audit says nothing, and reads for the ledger
SCHEMA = Path(__file__).with_name("compose-spec.json")


def containers() -> dict[str, dict[str, Any]]:
    return dict(compose()["services"])


def known(service: str) -> set[str]:
    own = groups().get(service)
    shared = [*settings(groups()["every service"]), *(settings(own) if own else [])]
    return {setting.name for setting in shared}


@pytest.fixture
def written(tmp_path: Path) -> Credentials:
    return kept_or_new(tmp_path)


def test_it_follows_the_compose_specification() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    errors = jsonschema.Draft7Validator(schema).iter_errors(compose())
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_the_specification_would_find_an_unknown_key() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    broken = {"services": {"gateway": {"image": "x", "read_onyl": True}}}
    assert not jsonschema.Draft7Validator(schema).is_valid(broken)


def test_docker_compose_itself_takes_it(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is missing on this machine")
    for name in files(kept_or_new(tmp_path)):
        (tmp_path / name).touch()
    done = subprocess.run(
        [docker, "compose", "--file", str(COMPOSE), "--profile", "all", "config", "--services"],
        env={**os.environ, "TRIPLANE_COMPOSE_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, set(done.stdout.split()), done.stderr) == (0, {*SERVERS, *SERVICES}, "")


def test_it_has_the_servers_and_every_service_of_the_catalogue() -> None:
    assert set(containers()) == {*SERVERS, *SERVICES}


def test_each_service_is_in_the_profile_of_its_plane_and_the_servers_are_always_there() -> None:
    profiles = {name: container.get("profiles") for name, container in containers().items()}
    assert profiles == {**dict.fromkeys(SERVERS), **{name: [PLANES[name], "all"] for name in SERVICES}}


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_is_built_from_the_one_dockerfile(service: str) -> None:
    built = {"context": ".", "dockerfile": "deploy/Dockerfile", "args": {"SERVICE": service}}
    container = containers()[service]
    assert (container["build"], container["image"]) == (built, f"triplane-{service}:dev")
    assert not {"command", "entrypoint", "healthcheck"} & container.keys()  # those of the image


@pytest.mark.parametrize("service", SERVICES)
def test_every_variable_it_sets_is_a_setting_of_that_service(service: str, written: Credentials) -> None:
    told = set(containers()[service]["environment"]) | set(_names(files(written)[f"{service}.env"]))
    assert told - known(service) == set()
    assert {name for name in _image_environment() if name.startswith("TRIPLANE_")} <= known(service)


def _names(lines: str) -> list[str]:
    return [line.partition("=")[0] for line in lines.splitlines()]


def _image_environment() -> list[str]:
    return [word.partition("=")[0] for each in image().all("ENV") for word in each.arguments]


def test_nothing_secret_stands_in_an_environment_or_a_command() -> None:
    secret = re.compile(r"PASSWORD$|TOKEN$|DSN$|REDIS_URL$")
    named = [f"{name}.{key}" for name, each in containers().items() for key in each.get("environment", {})]
    assert [name for name in named if secret.search(name)] == []


@pytest.mark.parametrize("name", [*SERVERS, *SERVICES])
def test_every_container_is_hardened(name: str) -> None:
    container = containers()[name]
    held = {key: container.get(key) for key in ("read_only", "cap_drop", "security_opt", "init", "restart")}
    assert held == {
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "init": True,
        "restart": "unless-stopped",
    }
    assert container["user"].split(":")[0].isdecimal()
    assert container["user"].split(":")[0] != "0"
    assert container["pids_limit"] > 0
    assert container["mem_limit"]
    assert container["logging"]["options"]["max-size"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"} & container.keys()


@pytest.mark.parametrize("name", [*SERVERS, *SERVICES])
def test_what_a_container_may_write_runs_nothing(name: str) -> None:
    executable = [place for place in containers()[name]["tmpfs"] if "noexec" not in place]
    assert [place.partition(":")[0] for place in executable] == (["/run/triplane"] if name == "agent" else [])
    assert all("nosuid" in place and "nodev" in place for place in containers()[name]["tmpfs"])


def test_ports_are_open_on_this_machine_alone_and_only_the_gateway_has_one() -> None:
    ports = {name: container["ports"] for name, container in containers().items() if "ports" in container}
    assert ports == {"gateway": ["127.0.0.1:8080:8080"]}
    assert [name for name, each in containers().items() if "edge" in each["networks"]] == ["gateway"]
    assert {name for name, each in compose()["networks"].items() if not each.get("internal")} == {"edge"}


def test_a_container_reaches_only_the_servers_it_uses() -> None:
    reached = {
        server: [
            name for name in SERVICES if set(containers()[name]["networks"]) & set(containers()[server]["networks"])
        ]
        for server in SERVERS
    }
    assert reached == {"nats": list(SERVICES), "redis": list(LEASING), "postgres": list(STORED)}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_starts_after_the_servers_it_uses(service: str) -> None:
    servers = ["nats", *(["postgres"] if service in STORED else []), *(["redis"] if service in LEASING else [])]
    assert containers()[service]["depends_on"] == {server: {"condition": "service_healthy"} for server in servers}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_longer_to_stop_than_it_can_take(service: str) -> None:
    grace_seconds = int(containers()[service]["stop_grace_period"].removesuffix("s"))
    web_seconds = 10.0  # the gateway's, for readers
    assert grace_seconds > DRAIN_SECONDS + web_seconds + FLUSH_SECONDS + DRAIN_SECONDS


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_given_its_own_credentials_and_no_other(service: str) -> None:
    assert containers()[service]["secrets"] == [{"source": f"{service}.env", "target": "settings"}]


def test_every_secret_is_a_file_that_the_tool_writes(written: Credentials) -> None:
    folder = Path(".triplane/compose")
    secrets = {name: Path(each["file"]) for name, each in compose()["secrets"].items()}
    assert secrets == {name: folder / name for name in secrets}
    assert set(secrets) == set(files(written)) - {"admin_token"}  # which is for people
    ignored = subprocess.run(["git", "check-ignore", "-q", str(folder / "nats.conf")], cwd=ROOT, check=False)
    assert ignored.returncode == 0


def test_those_that_keep_something_in_postgres_are_those_with_migrations() -> None:
    built = [name for name in SERVICES if (ROOT / "services" / name / "app.py").exists()]
    migrating = [name for name in built if (ROOT / "services" / name / "migrations").exists()]
    assert migrating == [name for name in built if name in STORED]


def test_those_that_hold_leases_are_those_that_import_them() -> None:
    sources = {name: (ROOT / "services" / name).rglob("*.py") for name in SERVICES}
    importing = [name for name, each in sources.items() if any("libs.leases" in path.read_text() for path in each)]
    assert importing == list(LEASING)
