"""The folder that ``python -m deploy.compose`` writes."""

import json
import shlex
from pathlib import Path

import pytest

from deploy.compose.__main__ import main
from deploy.compose.credentials import LEASING, OPERATOR, STORED, Credentials, kept_or_new
from deploy.compose.render import files, nats, redis, secrets_of
from schemas.catalog import SERVICES
from schemas.permissions import all_permissions


def some_credentials() -> Credentials:
    return Credentials(
        nats={user: f"nats-of-{user}" for user in (OPERATOR, *SERVICES)},
        redis={user: f"redis-of-{user}" for user in (OPERATOR, *LEASING)},
        postgres={user: f"postgres-of-{user}" for user in (OPERATOR, *STORED)},
        admin_token="token-of-the-administrator",
    )


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir()}


def test_only_its_owner_can_enter_it(tmp_path: Path) -> None:
    root = tmp_path / "a" / "compose"
    assert main(["--folder", str(root)]) == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in root.iterdir()}
    assert root.stat().st_mode & 0o777 == 0o700
    assert modes.pop("credentials.json") == 0o600
    assert set(modes.values()) == {0o444}  # containers' users read them through their mounts


def test_a_folder_that_was_open_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert main(["--folder", str(tmp_path)]) == 0
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_writing_again_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--folder", str(tmp_path)]) == 0
    before = contents(tmp_path)
    capsys.readouterr()
    assert main(["--folder", str(tmp_path)]) == 0
    assert (contents(tmp_path), capsys.readouterr().out) == (before, f"{tmp_path}: nothing has changed.\n")


def test_a_lost_file_comes_back_and_a_service_without_a_password_gets_one(tmp_path: Path) -> None:
    first = kept_or_new(tmp_path)
    lessened = first.model_dump(mode="json")
    del lessened["postgres"]["billing"]
    (tmp_path / "credentials.json").write_text(json.dumps(lessened))
    second = kept_or_new(tmp_path)
    assert second.postgres["billing"] not in (None, first.postgres["billing"])
    assert {**second.postgres, "billing": ""} == {**first.postgres, "billing": ""}
    assert (second.nats, second.redis, second.admin_token) == (first.nats, first.redis, first.admin_token)


def test_broken_credentials_are_left_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "credentials.json").write_text('{"nats": ')
    assert main(["--folder", str(tmp_path)]) == 1
    assert "is broken" in capsys.readouterr().err
    assert (tmp_path / "credentials.json").read_text() == '{"nats": '
    assert not (tmp_path / "nats.conf").exists()


def test_two_installations_share_no_password(tmp_path: Path) -> None:
    made = [kept_or_new(_made(tmp_path / name)) for name in ("one", "two")]
    passwords = [p for each in made for p in (*each.nats.values(), *each.redis.values(), *each.postgres.values())]
    assert len(set(passwords)) == len(passwords)
    assert min(len(password) for password in passwords) >= 32


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_credentials_do_not_print() -> None:
    assert f"{some_credentials()} {some_credentials()!r}" == "Credentials(hidden) Credentials(hidden)"


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_reads_its_own_passwords_and_no_other(service: str) -> None:
    text = files(some_credentials())[f"{service}.env"]
    named = [
        word
        for word in some_credentials().nats
        if any(f"{kind}-of-{word}" in text for kind in ("nats", "redis", "postgres"))
    ]
    assert named == [service]
    assert ("token-of-the-administrator" in text) == (service == "gateway")


def test_the_lines_are_what_a_shell_reads() -> None:
    lines = files(some_credentials())["placement.env"].splitlines()
    read = dict(word.split("=", 1) for line in lines for word in shlex.split(line))
    assert (
        read
        == secrets_of("placement", some_credentials())
        == {
            "TRIPLANE_NATS_USER": "placement",
            "TRIPLANE_NATS_PASSWORD": "nats-of-placement",
            "TRIPLANE_POSTGRES_DSN": "postgresql://triplane_placement:postgres-of-placement@postgres:5432/triplane",
            "TRIPLANE_REDIS_URL": "redis://placement:redis-of-placement@redis:6379/0",
        }
    )


def test_each_nats_user_has_the_catalogues_rights_and_only_who_is_asked_may_answer() -> None:
    users = json.loads(nats(some_credentials()))["accounts"]["TRIPLANE"]["users"]
    rights = {user["user"]: dict(user.get("permissions", {})) for user in users}
    answering = [user for user, right in rights.items() if right.pop("allow_responses", False)]
    assert rights == {OPERATOR: {}, **all_permissions()}
    assert answering == ["admission", "placement", "dispatch", "agent", "inventory", "audit"]


def test_redis_lets_nobody_in_without_a_name() -> None:
    lines = redis(some_credentials()).splitlines()
    users = {line.split()[1]: line.split()[2:] for line in lines if line.startswith("user ")}
    assert users["default"] == ["off"]
    assert users["probe"][-2:] == ["-@all", "+ping"]
    assert set(users) == {"default", "probe", OPERATOR, *LEASING}
