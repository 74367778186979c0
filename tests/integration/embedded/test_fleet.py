"""The fleet document of a stack: kept when it was taken, and only then."""

from pathlib import Path

import pytest

from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.config import CLIENT_FILE, read
from tests.support.stacks import embedded

GOOD = """apiVersion: triplane/v1
kind: Cluster
metadata: {name: small}
spec: {backend: local, nodes: [{name: n1, devices: 1, model: H100}]}
"""
CLASS = """apiVersion: triplane/v1
kind: GpuClass
metadata: {name: new}
spec: {match: {model: H200}}
"""
REFUSED = f"""{CLASS}---
apiVersion: triplane/v1
kind: Queue
metadata: {{name: main, tenant: nobody}}
spec: {{quotas: [{{class: new, nominal: 1}}]}}
"""


@pytest.mark.timeout(240)
async def test_a_refused_fleet_document_is_named_and_leaves_the_good_one_in_force(state: Path, tmp_path: Path) -> None:
    good, bad, kept = tmp_path / "good.yaml", tmp_path / "bad.yaml", state / "fleet.yaml"
    good.write_text(GOOD)
    bad.write_text(REFUSED)
    first = await embedded("up", "--detach", "--state", state, "--fleet", good)
    assert (first.code, kept.read_text()) == (0, GOOD), first.said
    await embedded("down", "--state", state)
    second = await embedded("up", "--detach", "--state", state, "--fleet", bad)
    assert (second.code, kept.read_text()) == (2, GOOD)
    assert f"{bad} is refused: Queue main: metadata.tenant: " in second.said
    assert second.said.endswith("mend it; it was not kept\n")
    third = await embedded("up", "--detach", "--state", state)
    assert third.code == 0, third.said
    async with AsyncClient(read(state / CLIENT_FILE)) as admin:
        answer = await admin.ask(calls.submit(CLASS.encode(), dry_run=True))
        assert [(result.outcome, result.faults) for result in answer.results] == [
            ("created", ())
        ]  # nothing of it stayed


@pytest.mark.parametrize("detach", [("--detach",), ()])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "fleet.yaml cannot be read"),
        ("kind: [", "fleet.yaml:2: is not YAML"),
        (GOOD.replace("local", "lokal"), "fleet.yaml:4: spec.backend: 'lokal' is not known; did you mean local?"),
        ("", "fleet.yaml holds no document"),
    ],
)
async def test_a_broken_fleet_document_ends_with_bad_input(
    state: Path, tmp_path: Path, detach: tuple[str, ...], text: str | None, told: str
) -> None:
    file = tmp_path / "fleet.yaml"
    if text is not None:
        file.write_text(text)
    done = await embedded("up", *detach, "--state", state, "--fleet", file)
    assert (done.code, told in done.said, (state / "fleet.yaml").exists()) == (2, True, False), done.said


async def test_a_fleet_document_goes_without_servers_only(state: Path, tmp_path: Path) -> None:
    done = await embedded("up", "--servers-only", "--state", state, "--fleet", tmp_path / "fleet.yaml")
    assert (done.code, "--servers-only" in done.said, state.exists()) == (2, True, False)
