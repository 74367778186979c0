"""Patience, logs, ports and the fleet document."""

import shutil
import socket
from pathlib import Path

import pytest

from deploy.embedded import children, fleet, ports, staffing
from deploy.embedded.failures import BadDocumentError, StateRefusedError
from deploy.embedded.logs import rotate
from deploy.embedded.patience import LONGEST_DELAY_SECONDS, MOST_DEATHS, SETTLED_SECONDS, Patience
from deploy.embedded.posts import Post
from deploy.embedded.state import StateFolder, open_state
from libs.config import Infrastructure
from schemas.catalog import SERVICES


def test_patience_doubles_up_to_a_bound_and_ends() -> None:
    patience, delays = Patience(), []
    while not patience.is_spent:
        patience = patience.after_death(lived_seconds=0.5)
        delays.append(patience.delay_seconds)
    assert delays == [min(LONGEST_DELAY_SECONDS, 0.1 * 2**n) for n in range(MOST_DEATHS)]


def test_a_service_of_several_replicas_has_a_post_for_each(tmp_path: Path) -> None:
    staff = staffing.wanted(open_state(tmp_path / "state"), (), {"placement": 3})
    several = {post for post, service in staff.services.items() if service == "placement"}
    assert several == {"placement", "placement-2", "placement-3"}
    assert len(staff.services) == len(SERVICES) + 1  # no agent without a fleet, and two placements more


def test_a_long_life_forgives_earlier_deaths() -> None:
    assert Patience(MOST_DEATHS - 1).after_death(SETTLED_SECONDS) == Patience(1)


def test_deaths_on_a_full_disk_make_waits_longer_and_cost_no_patience() -> None:
    patience = Patience()
    for _ in range(2 * MOST_DEATHS):
        patience = patience.after_death(0.5, excused=True)
        assert not patience.is_spent
    assert patience.delay_seconds == LONGEST_DELAY_SECONDS
    assert patience.after_death(5) == Patience(1)


def test_a_log_is_put_aside_when_it_is_too_large_and_only_two_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "nats.log"
    with log.open("ab") as writer:
        for content in (b"first", b"second", b"third", b"fourth"):
            writer.write(content)
            writer.flush()
            assert rotate(log, most_bytes=4)
        writer.write(b"end")
    assert not rotate(log, most_bytes=4)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert kept == {"nats.log": b"end", "nats.log.1": b"fourth", "nats.log.2": b"third"}


def test_ports_are_kept_unless_somebody_else_has_taken_one(tmp_path: Path) -> None:
    folder = open_state(tmp_path / "state")
    first = ports.settle(folder, ["a", "b"], {})
    assert ports.settle(folder, ["a", "b"], {}) == first
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", first["a"]))
        thief.listen()
        again = ports.settle(folder, ["a", "b"], {})
    assert (again["b"], again["a"] != first["a"]) == (first["b"], True)


def test_a_broken_credentials_or_format_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("one")
    with pytest.raises(StateRefusedError, match="holds 'one' where a number belongs"):
        open_state(tmp_path)


def test_every_fault_of_a_fleet_document_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("apiVersion: triplane/v1\nkind: Cluster\nmetadata: {name: demo}\nspec: {backend: lokal}\n")
    with pytest.raises(BadDocumentError) as caught:
        fleet.chosen(open_state(tmp_path / "state"), file)
    assert str(caught.value) == f"{file}:4: spec.backend: 'lokal' is not known; did you mean local?"


@pytest.mark.parametrize("text", ["", "# soon\n---\n"])
def test_a_fleet_document_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    with pytest.raises(BadDocumentError, match="holds no document"):
        fleet.chosen(open_state(tmp_path / "state"), file)


def test_a_local_cluster_gets_an_agent_a_node_and_a_pretended_one_a_single_agent(tmp_path: Path) -> None:
    folder = open_state(tmp_path / "state")
    node = "{name: %s, devices: 8, model: H100}"
    text = (
        "apiVersion: triplane/v1\nkind: Cluster\nmetadata: {name: real}\n"
        f"spec: {{backend: local, nodes: [{node % 'n1'}, {node % 'n2'}]}}\n---\n"
        "apiVersion: triplane/v1\nkind: Cluster\nmetadata: {name: big}\n"
        f"spec: {{backend: pretend, nodes: [{node % 'p1'}, {node % 'p2'}]}}\n"
    )
    agents = fleet.agents(folder, fleet.read(text, "fleet.yaml"))
    assert {name: told.get("node") for name, told in agents.items()} == {
        "agent-real-n1": "n1",
        "agent-real-n2": "n2",
        "agent-big": None,
    }
    assert fleet.agents(folder, fleet.read(text, "fleet.yaml")) == agents


def test_a_process_is_told_the_same_as_a_task(tmp_path: Path) -> None:
    surroundings = Infrastructure.model_validate(
        {"nats_url": "nats://x:1", "nats_user": "agent", "nats_password": "secret", "health_port": 7}
    )
    post = Post("agent-demo-n1", "agent", surroundings, {"devices": 8, "runtime_dir": tmp_path, "allow_root": False})
    told = post.environment()
    assert {key: told[key] for key in told if "NATS" in key or "AGENT" in key or "HEALTH_PORT" in key} == {
        "TRIPLANE_NATS_URL": "nats://x:1",
        "TRIPLANE_NATS_USER": "agent",
        "TRIPLANE_NATS_PASSWORD": "secret",
        "TRIPLANE_HEALTH_PORT": "7",
        "TRIPLANE_AGENT_DEVICES": "8",
        "TRIPLANE_AGENT_RUNTIME_DIR": str(tmp_path),
        "TRIPLANE_AGENT_ALLOW_ROOT": "false",
    }
    assert StateFolder(tmp_path).log_file(post.name) == tmp_path / "logs" / "agent-demo-n1.log"


def test_what_died_is_started_again_though_somebody_took_the_logs_and_the_records_away(tmp_path: Path) -> None:
    folder = open_state(tmp_path / "state")
    shutil.rmtree(folder.logs)
    shutil.rmtree(folder.root / "run")
    child = children.spawn(folder, "echo", children.Program(["echo", "here"]))
    child.process.wait(10)
    assert (folder.log_file("echo").read_text(), folder.record_file("echo").exists()) == ("here\n", True)
