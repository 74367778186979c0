"""One stack for the whole matrix; its table is shown at the end."""

from collections.abc import Iterator

import pytest

from tests.support import victims
from tests.support.victims import Stack

FLEET = """
apiVersion: triplane/v1
kind: GpuClass
metadata: {name: h100}
spec: {match: {model: NVIDIA H100 80GB HBM3}, pricePerHour: "2.50 USD"}
---
apiVersion: triplane/v1
kind: Cluster
metadata: {name: kills}
spec:
  backend: local
  nodes:
    - {name: n1, devices: 4, model: NVIDIA H100 80GB HBM3}
    - {name: n2, devices: 4, model: NVIDIA H100 80GB HBM3}
    - {name: n3, devices: 4, model: NVIDIA H100 80GB HBM3}
"""
ROWS = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A stack of three nodes with four devices each, every part in a process of its own."""
    failed = request.session.testsfailed
    with victims.stack(FLEET) as opened:
        yield opened
    if request.session.testsfailed == failed:
        victims.remove(opened)
    else:
        print(f"\nState and logs are in {opened.folder.root}.")  # noqa: T201


@pytest.fixture(scope="session")
def table(pytestconfig: pytest.Config) -> list[str]:
    """The rows of the table that is shown at the end."""
    return pytestconfig.stash.setdefault(ROWS, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for row in config.stash.get(ROWS, []):
        terminalreporter.write_line(row)
