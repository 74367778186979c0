"""Errors are caught narrowly, and never swallowed whole."""

import ast
from typing import Final

EVERYTHING: Final = frozenset({"BaseException", "Exception"})


def swallowed(source: str) -> list[str]:
    """Return the lines that catch without a name, or catch everything and go on as if nothing had been."""
    handlers = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler))
    return [f"{handler.lineno}: catches everything" for handler in handlers if _swallows(handler)]


def _swallows(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    catches_all = isinstance(handler.type, ast.Name) and handler.type.id in EVERYTHING
    return catches_all and all(isinstance(node, ast.Pass | ast.Continue) for node in handler.body)
