import pytest

from tests.tidy import tree
from tests.tidy.rules import catching


@pytest.mark.parametrize(
    "handler",
    [
        "except:\n    log()",
        "except Exception:\n    pass",
        "except BaseException:\n    pass",
        "except Exception as e:\n    pass",
    ],
)
def test_an_error_swallowed_whole_is_found(handler: str) -> None:
    assert catching.swallowed(f"try:\n    run()\n{handler}") == ["3: catches everything"]


@pytest.mark.parametrize("handler", ["except KeyError:\n    pass", "except Exception:\n    undo()\n    raise"])
def test_a_narrow_catch_is_not(handler: str) -> None:
    assert catching.swallowed(f"try:\n    run()\n{handler}") == []


def test_nothing_in_this_tree_swallows_errors() -> None:
    assert [f"{place}:{fault}" for place, source in tree.modules() for fault in catching.swallowed(source)] == []
