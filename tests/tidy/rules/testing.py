"""Tests wait for what they expect, never for a while; they use real things, never mocks; they assert."""

import ast
import re
from typing import Final

MOCKS: Final = frozenset({"AsyncMock", "MagicMock", "Mock", "create_autospec"})
PROMISE: Final = re.compile(r"_*(assert|check|eventually|expect|hold|must|never|raises|run_state_machine|verify|warns)")


def sleeps(source: str) -> list[str]:
    """Return the lines that sleep; `asyncio.sleep(0)` only lets others run."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [f"{call.lineno}: sleeps" for call in calls if _name(call) == "sleep" and not _is_zero(call)]


def mocks(source: str) -> list[str]:
    """Return the lines that make a mock or patch an attribute."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [f"{call.lineno}: mocks" for call in calls if _name(call) in MOCKS or _patches(call)]


def silent(source: str) -> list[str]:
    """Return the tests that assert nothing: no assert, no call whose name promises a check."""
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    checking = {f.name for f in functions if not f.name.startswith("test_") and _asserts(f, set())}
    tests = (f for f in functions if f.name.startswith("test_"))
    return [f"{test.lineno}: {test.name} asserts nothing" for test in tests if not _asserts(test, checking)]


def _asserts(function: ast.AST, checking: set[str]) -> bool:
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and (_name(node) in checking or PROMISE.match(_name(node)) is not None))
        for node in ast.walk(function)
    )


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _patches(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr="setattr", value=ast.Name(id="monkeypatch")):
            return True
        case ast.Attribute(attr="patch") | ast.Name(id="patch"):
            return True
        case _:
            return False


def _is_zero(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
