"""Cores, schemas and resources decide; they do not look at the clock, roll dice, read, write or log.

Import contracts see imports only. This rule sees `datetime.now`, `open` and `uuid4`, too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MODULES: Final = frozenset(
    "asyncio builtins concurrent ctypes fcntl glob http importlib io locale logging mmap multiprocessing os pickle "
    "platform psutil queue random sched secrets select selectors shelve shutil signal socket sqlite3 ssl subprocess "
    "sys tempfile threading time urllib".split()
)
BUILTINS: Final = frozenset({"__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"})
METHODS: Final = frozenset(
    "getnode monotonic now perf_counter read_bytes read_text today urandom utcnow uuid1 uuid4 uuid6 uuid7 "
    "write_bytes write_text".split()
)
OWNERS: Final = frozenset({"date", "datetime", "uuid"})
NAMES: Final = frozenset({"Path", "PosixPath", "getnode", "uuid1", "uuid4", "uuid6", "uuid7"})


def is_pure(place: Path) -> bool:
    """Return whether the rule holds for this module: `schemas/__main__.py` writes the generated files."""
    parts = place.parts
    if parts[0] == "schemas":
        return place.name != "__main__.py"
    if parts[:2] == ("libs", "resources"):
        return True
    return len(parts) > 2 and parts[0] == "services" and (parts[2] == "core" or parts[2] == "core.py")


def impurities(source: str) -> list[str]:
    """Return `line: what` for each look outside in this module."""
    found = {fault for node in ast.walk(ast.parse(source)) for fault in _of(node)}
    return [f"{line}: {what}" for line, what in sorted(found)]


def _of(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((node.lineno, what) for what in _imports(node))
    elif isinstance(node, ast.expr):
        yield from ((node.lineno, what) for what in _looks(node))


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    names = {alias.name for alias in node.names}
    if isinstance(node, ast.Import):
        yield from (f"import {name}" for name in names if name.partition(".")[0] in MODULES)
    elif (node.module or "").partition(".")[0] in MODULES:
        yield f"from {node.module} import"
    elif node.module in {"pathlib", "uuid"} and names & NAMES:
        yield f"from {node.module} import {', '.join(sorted(names & NAMES))}"


def _looks(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Attribute(attr="random"):
            yield ".random"
        case ast.Attribute(attr=attr, value=ast.Name(id=owner)) if attr in METHODS and owner in OWNERS:
            yield f".{attr}"
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in METHODS:
            yield f".{attr}"
        case ast.Call(func=ast.Name(id=name)) if name in BUILTINS:
            yield f"{name}()"
