"""Every service has the same bones, each where it is needed; a module names its subject and says something."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

BONES: Final = frozenset({"__init__.py", "__main__.py", "app.py", "core.py", "handlers.py", "settings.py", "store.py"})
OWN: Final = {"agent": frozenset({"shim.py"})}
REVISION: Final = re.compile(r"\d{4}_[a-z0-9_]+\.py")
NAMELESS: Final = frozenset({"base_utils", "common", "helper", "helpers", "misc", "tools", "util", "utils"})
LONG_MODULE: Final = 400
LONG_FUNCTION: Final = 45
LONG_TEST: Final = 60  # a test holds the whole value that it expects


def strange(places: Iterable[Path]) -> list[str]:
    """Return the files under `services/` that are no bone of a service."""
    return [str(place) for place in places if place.parts[0] == "services" and not _is_bone(place)]


def _is_bone(place: Path) -> bool:
    match place.parts:
        case ("services", "__init__.py" | "py.typed"):
            return True
        case ("services", service, name):
            return name in BONES | OWN.get(service, frozenset())
        case ("services", _, "core" | "handlers" | "store", *_, name) | ("services", "agent", "shim", name):
            return name.endswith(".py")
        case ("services", _, "migrations", "versions", name):
            return REVISION.fullmatch(name) is not None
        case _:
            return False


def halved(places: Iterable[Path]) -> list[str]:
    """Return the bones that are both a module and a package."""
    known = {place.parts[:3] for place in places if place.parts[0] == "services" and len(place.parts) > 2}
    return sorted("/".join(part) for part in known if (*part[:2], f"{part[2]}.py") in known)


def is_empty(place: Path, source: str) -> bool:
    """Return whether a module holds nothing but its docstring; an `__init__` may."""
    body = ast.parse(source).body
    return place.name != "__init__.py" and not [node for node in body if not _is_docstring(node)]


def says_more_than_its_docstring(source: str) -> bool:
    """Return whether a package's `__init__` holds code."""
    return any(not _is_docstring(node) for node in ast.parse(source).body)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_nameless(place: Path) -> bool:
    """Return whether a module's or package's name says nothing about its subject."""
    return place.suffix == ".py" and bool({place.stem, *place.parent.parts} & NAMELESS)


def is_long(source: str) -> bool:
    """Return whether a module is longer than a reader's patience."""
    return source.count("\n") > LONG_MODULE


def long_functions(source: str) -> list[str]:
    """Return `line: name, length` of each function that should be two; its signature does not count."""
    functions = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    lengths = ((f, (f.end_lineno or f.lineno) - f.body[0].lineno + 1) for f in functions)
    return [
        f"{f.lineno}: {f.name}, {length} lines"
        for f, length in lengths
        if length > (LONG_TEST if f.name.startswith("test_") else LONG_FUNCTION)
    ]
