from pathlib import Path

import pytest

from tests.tidy import tree
from tests.tidy.rules import bones

FOLDERS = ("schemas", "libs", "services", "cli", "deploy", "tests", "benchmarks")


@pytest.mark.parametrize(
    "name",
    [
        "services/billing/models.py",
        "services/billing/core.txt",
        "services/billing/migrations/0001_first.py",
        "services/billing/migrations/versions/first.py",
        "services/billing/shim.py",
        "services/loose.py",
    ],
)
def test_a_file_that_is_no_bone_of_a_service_is_found(name: str) -> None:
    assert bones.strange([Path(name)]) == [name]


@pytest.mark.parametrize(
    "name",
    [
        "services/__init__.py",
        "services/billing/core.py",
        "services/placement/core/fit.py",
        "services/gateway/store/jobs.py",
        "services/agent/handlers/calls.py",
        "services/billing/migrations/versions/0001_usage.py",
        "services/agent/shim.py",
        "services/agent/shim/locks.py",
        "libs/bus/subjects.py",
    ],
)
def test_a_bone_is_not(name: str) -> None:
    assert bones.strange([Path(name)]) == []


def test_a_bone_is_a_module_or_a_package_never_both() -> None:
    both = [Path("services/billing/core.py"), Path("services/billing/core/rates.py"), Path("services/audit/core.py")]
    assert bones.halved(both) == ["services/billing/core"]


@pytest.mark.parametrize(
    ("name", "source", "empty"),
    [
        ("services/billing/app.py", '"""Says nothing."""', True),
        ("services/billing/app.py", "", True),
        ("services/billing/app.py", "x = 1", False),
        ("services/billing/__init__.py", '"""Billing."""', False),
    ],
)
def test_a_module_without_code_is_empty(name: str, source: str, empty: bool) -> None:
    assert bones.is_empty(Path(name), source) == empty


def test_code_in_an_init_is_found() -> None:
    assert bones.says_more_than_its_docstring('"""Billing."""\nfrom services.billing.app import build')


@pytest.mark.parametrize("name", ["libs/utils.py", "libs/common/pool.py", "tests/helpers.py"])
def test_a_name_without_a_subject_is_found(name: str) -> None:
    assert bones.is_nameless(Path(name))


def test_a_module_of_401_lines_is_long_and_one_of_400_is_not() -> None:
    assert [bones.is_long("x = 1\n" * length) for length in (400, 401)] == [False, True]


def test_a_body_of_46_lines_is_long_and_one_of_45_is_not() -> None:
    source = "def short():\n" + "    x = 1\n" * 45 + "async def long(\n    x):\n" + "    x = 1\n" * 46
    assert bones.long_functions(source) == ["47: long, 46 lines"]


def test_a_test_may_be_longer_by_the_value_it_expects() -> None:
    source = "def test_short():\n" + "    x = 1\n" * 60 + "def test_long():\n" + "    x = 1\n" * 61
    assert bones.long_functions(source) == ["62: test_long, 61 lines"]


def test_every_service_has_the_same_bones() -> None:
    assert bones.strange(tree.files()) == []
    assert bones.halved(tree.files()) == []


def test_no_module_is_empty_and_no_service_hides_code_in_its_init() -> None:
    modules = list(tree.modules(*FOLDERS))
    assert [str(place) for place, source in modules if bones.is_empty(place, source)] == []
    inits = [
        (p, source)
        for p, source in modules
        if p.parts[0] == "services" and p.name == "__init__.py" and len(p.parts) == 3
    ]
    assert [str(place) for place, source in inits if bones.says_more_than_its_docstring(source)] == []


def test_every_module_names_its_subject() -> None:
    assert [str(place) for place in tree.files() if bones.is_nameless(place)] == []


def test_every_module_and_every_function_is_short() -> None:
    # A model of the protocol is one table of steps, however long.
    modules = [(place, source) for place, source in tree.modules() if place.parts[:2] != ("tests", "model")]
    assert [str(place) for place, source in modules if bones.is_long(source)] == []
    assert [f"{place}:{fault}" for place, source in modules for fault in bones.long_functions(source)] == []
