"""`deploy/Dockerfile`: one image a service, with that service's code and nothing else of the tree."""

import fnmatch
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.catalog import SERVICES
from tests.support.containers import DOCKERFILE, ROOT, image, stages

BUILT = [name for name in SERVICES if (ROOT / "services" / name / "__main__.py").exists()]
COPIED = ("schemas", "libs", "services/__init__.py", "services/${SERVICE}")
STRANGERS = """
import sys, services.{service}.__main__
loaded = {{name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}}
print(*sorted(name for name, file in loaded.items() if file.startswith("{root}/") and not file.startswith(sys.prefix)))
"""


def test_an_image_takes_schemas_libs_and_one_service() -> None:
    tree = [each for each in image().all("COPY") if "--from=" not in each.rest]
    assert [each.arguments for each in tree] == [[place, place] for place in COPIED]


def test_the_other_stages_take_the_hashed_pins_alone() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    copies = [each.arguments for stage in stages(text)[:-1] for each in stage.all("COPY")]
    assert copies == [["requirements/${PINS}.txt", "/src/pins.txt"]] * 2
    assert "ARG PINS=base\n" in text
    assert "ADD " not in text


def test_packages_come_by_hash_and_a_network_is_there_for_nothing_else() -> None:
    runs = [each.rest for stage in stages(DOCKERFILE.read_text(encoding="utf-8")) for each in stage.all("RUN")]
    fetching = [run for run in runs if "pip download" in run or "pip install" in run]
    assert all("--require-hashes" in run for run in fetching)
    assert [run for run in fetching if "--network=none" not in run] == [run for run in runs if "pip download" in run]
    assert not any(word in run for run in runs for word in ("curl", "wget", "apt-get", "git "))


def test_an_image_runs_as_an_ordinary_user_and_ends_well() -> None:
    assert [each.rest for each in image().all("USER")] == ["10001:10001"]
    assert image().only("STOPSIGNAL").rest == "SIGTERM"
    assert image().only("ENTRYPOINT").listed[:2] == ["/bin/sh", "-c"]
    assert image().only("ENTRYPOINT").listed[2].endswith("exec python -m services.$SERVICE")


def test_an_image_asks_for_its_own_life() -> None:
    assert "/healthz" in image().only("HEALTHCHECK").listed[-1]


def test_no_image_is_built_without_naming_a_service() -> None:
    instructions = [(each.word, each.rest) for each in image().instructions]
    assert instructions.index(("RUN", 'test -n "${SERVICE}"')) == instructions.index(("ARG", "SERVICE")) + 1


def test_a_build_is_sent_only_what_it_copies() -> None:
    patterns = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = [line[1:] for line in patterns if line.startswith("!")]
    assert patterns[1] == "*"
    assert kept == ["schemas", "libs", "services", "requirements/base.txt", "requirements/otlp.txt"]
    assert [line for line in patterns[2:] if line[0] not in "!#"] == ["**/__pycache__", "**/*.py[cod]"]


@pytest.mark.parametrize("service", BUILT)
def test_a_service_needs_nothing_of_the_tree_but_its_image(service: str, tmp_path: Path) -> None:
    _copy_image(service, tmp_path)
    program = STRANGERS.format(service=service, root=ROOT)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def _copy_image(service: str, target: Path) -> None:
    for place in COPIED:
        source = place.replace("${SERVICE}", service)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target / source, ignore=_ignored)
        else:
            (target / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, target / source)


def _ignored(_folder: str, names: list[str]) -> set[str]:
    return {name for name in names if fnmatch.fnmatch(name, "__pycache__") or fnmatch.fnmatch(name, "*.py[cod]")}
