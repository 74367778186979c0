import tomllib

import pytest

from tests.tidy import tree
from tests.tidy.rules import pins

HASH = f"    --hash=sha256:{'0' * 64}"
GOOD = f"anyio==4.16.0 \\\n{HASH} \\\n{HASH}\ncolorama==0.4.6 ; sys_platform == 'win32' \\\n{HASH}\n"


def content(name: str) -> str:
    return (tree.ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")


def wanted(*extras: str) -> list[str]:
    project = tomllib.loads((tree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]


def test_a_good_file_of_pins_has_no_faults() -> None:
    assert (pins.strange_lines(GOOD), pins.unhashed(GOOD)) == ([], [])
    assert pins.versions(GOOD) == {"anyio": {"4.16.0"}, "colorama": {"0.4.6"}}


@pytest.mark.parametrize("line", ["--no-index", "anyio>=4", "anyio @ https://example.org/a.whl"])
def test_a_line_that_is_no_pin_is_found(line: str) -> None:
    assert pins.strange_lines(f"{line}\n{GOOD}") == [line]


def test_a_pin_without_a_hash_is_found() -> None:
    assert pins.unhashed(f"idna==3.20 \\\n{GOOD}idna==3.21 \\\n") == ["idna==3.20 \\", "idna==3.21 \\"]


def test_a_requirement_without_its_pin_is_found() -> None:
    pinned = {"redis": {"8.1.0"}, "types-pyyaml": {"6.0"}}
    assert pins.unmet(["redis[hiredis]>=5", "Types_PyYAML>=5"], pinned) == []
    assert pins.unmet(["redis>=9", "orjson>=3"], pinned) == ["redis>=9", "orjson>=3"]


@pytest.mark.parametrize(
    ("name", "extras"),
    [("base", ()), ("embedded", ("embedded",)), ("otlp", ("otlp",)), ("dev", ("embedded", "otlp", "dev"))],
)
def test_the_pins_answer_the_project_by_hash_and_from_nowhere_in_particular(name: str, extras: tuple[str, ...]) -> None:
    text = content(name)
    assert (pins.strange_lines(text), pins.unhashed(text)) == ([], [])
    assert pins.unmet(wanted(*extras), pins.versions(text)) == []


def test_what_is_deployed_was_tested() -> None:
    tested = pins.versions(content("dev"))
    assert [
        name for name in ("base", "embedded", "otlp") if not pins.versions(content(name)).items() <= tested.items()
    ] == []
