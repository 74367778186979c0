"""`docs/settings.md` and `docs/operations.md` say what the code says."""

import inspect
import re

from deploy.settings import Setting, comments, groups, page, settings
from libs.config import Infrastructure
from services.agent.core import orders
from tests.support.containers import ROOT, compose


def test_the_page_of_settings_is_what_the_code_says() -> None:
    written = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert written == page(), "`python -m deploy.settings` writes it again"


def test_a_setting_has_its_variable_type_default_and_remark() -> None:
    found = {setting.name: setting for setting in settings(Infrastructure)}
    assert found["TRIPLANE_HEALTH_PORT"] == Setting(
        "TRIPLANE_HEALTH_PORT", "integer", "`0`", "0: any free port, said in the log"
    )
    assert found["TRIPLANE_NATS_PASSWORD"] == Setting("TRIPLANE_NATS_PASSWORD", "secret", "", "")


def test_a_remark_is_the_comment_on_the_lines_of_its_field() -> None:
    one = "class Settings:\n    wait_seconds: float = 1.0  # one beat\n"
    source = one + "    b: int = (\n        2\n    )  # more\n    c: int = 3\n"
    assert comments(source) == {"wait_seconds": "one beat", "b": "more", "c": ""}


def test_every_variable_is_read_by_one_group_only() -> None:
    names = [setting.name for group in groups().values() for setting in settings(group)]
    assert sorted(names) == sorted(set(names))


def test_operators_are_told_of_variables_that_exist() -> None:
    guide = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    known = {setting.name for group in groups().values() for setting in settings(group)}
    known |= set(re.findall(r"\$\{(\w+):-", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    known |= set(re.findall(r'"(TRIPLANE_\w+)"', inspect.getsource(orders)))  # what a run is told
    assert set(re.findall(r"\bTRIPLANE_[A-Z_]+[A-Z]\b", guide)) - known == set()


def test_operators_are_told_of_every_container_port_and_volume() -> None:
    guide = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    inside = {"4222", "6379", "5432", "8080", "8081"}
    assert [name for name in (*inside, *compose()["services"], *compose()["volumes"]) if f"`{name}`" not in guide] == []


def test_comments_are_found_in_the_class_that_every_service_shares() -> None:
    assert comments(inspect.getsource(Infrastructure))["postgres_dsn"] == "with the service's own role"
