from pathlib import Path

import pytest

from tests.tidy import tree
from tests.tidy.rules import purity

BAD = {
    "import logging": "1: import logging",
    "import os.path": "1: import os.path",
    "from time import monotonic": "1: from time import",
    "from pathlib import Path": "1: from pathlib import Path",
    "from uuid import UUID, uuid4": "1: from uuid import uuid4",
    "from datetime import datetime\nat = datetime.now()": "2: .now",
    "from dataclasses import field\nat = field(default_factory=datetime.now)": "2: .now",
    "import uuid\nid = uuid.uuid4()": "2: .uuid4",
    "def decide(view, clock):\n    return clock.now()": "2: .now",
    "import numpy\ndice = numpy.random.default_rng()": "2: .random",
    "def load(name):\n    return open(name)": "2: open()",
    "print('here')": "1: print()",
}
GOOD = """
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from uuid import UUID, uuid5

def decide(view: View, *, now: datetime) -> timedelta:
    return now - view.now
"""


@pytest.mark.parametrize("source", BAD)
def test_a_core_that_looks_outside_is_found(source: str) -> None:
    assert purity.impurities(source) == [BAD[source]]


def test_a_core_that_takes_time_and_ids_as_values_is_pure() -> None:
    assert purity.impurities(GOOD) == []


@pytest.mark.parametrize(
    ("place", "pure"),
    [
        ("services/placement/core.py", True),
        ("services/placement/core/fit.py", True),
        ("services/placement/store.py", False),
        ("libs/resources/span.py", True),
        ("libs/bus/turn.py", False),
        ("schemas/codec.py", True),
        ("schemas/__main__.py", False),
    ],
)
def test_the_rule_holds_for_cores_schemas_and_resources(place: str, pure: bool) -> None:
    assert purity.is_pure(Path(place)) == pure


def test_no_core_of_this_tree_looks_outside() -> None:
    pure = ((place, source) for place, source in tree.modules("schemas", "libs", "services") if purity.is_pure(place))
    assert [f"{place}:{fault}" for place, source in pure for fault in purity.impurities(source)] == []
