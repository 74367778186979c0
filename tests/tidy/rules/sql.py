"""SQL stands whole and bound: never put together from values, never one query for each row."""

import ast
import re
from typing import Final

STATEMENT: Final = re.compile(
    r"\b(SELECT\b.+\bFROM|INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM)\b", re.IGNORECASE | re.DOTALL
)
QUERIES: Final = frozenset({"execute", "executemany", "fetch", "fetchrow", "fetchval"})
LOOPS: Final = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def assembled(source: str) -> list[str]:
    """Return the lines where a statement is made by an f-string, `+`, `%` or `.format`."""
    return sorted({f"{node.lineno}: SQL put together" for node in _expressions(source) if _assembles(node)})


def _expressions(source: str) -> list[ast.expr]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.expr)]


def _assembles(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr(values=values):
            return any(isinstance(v, ast.FormattedValue) for v in values) and _is_statement(values)
        case ast.BinOp(op=ast.Add() | ast.Mod(), left=left, right=right):
            return _is_statement([left, right]) and not (_is_text(left) and _is_text(right))
        case ast.Call(func=ast.Attribute(attr="format", value=value)):
            return _is_statement([value])
        case _:
            return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_statement(nodes: list[ast.expr]) -> bool:
    words = " ".join(n.value if isinstance(n, ast.Constant) and isinstance(n.value, str) else "x" for n in nodes)
    return STATEMENT.search(words) is not None


def in_loops(source: str) -> list[str]:
    """Return the lines where a store asks the database inside a loop."""
    loops = (node for node in ast.walk(ast.parse(source)) if isinstance(node, LOOPS))
    return sorted({f"{call.lineno}: a query in a loop" for loop in loops for call in _repeated(loop)})


def _repeated(loop: ast.AST) -> list[ast.Call]:
    once = [loop.iter] if isinstance(loop, ast.For | ast.AsyncFor) else []
    if isinstance(loop, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        once = [loop.generators[0].iter]
    skipped = {id(node) for part in once for node in ast.walk(part)}
    return [n for n in ast.walk(loop) if isinstance(n, ast.Call) and id(n) not in skipped and _is_query(n)]


def _is_query(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="op" | "operations")):
            return False  # a migration runs once
        case ast.Attribute(attr=attr):
            return attr in QUERIES
        case _:
            return False
