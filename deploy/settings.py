"""Every setting of every service: ``python -m deploy.settings [--check]`` writes `docs/settings.md` from the code."""

import ast
import importlib
import inspect
import io
import sys
import tokenize
import types
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from libs.config import Infrastructure
from schemas.catalog import SERVICES

PAGE: Final = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD: Final = """<!-- written by `python -m deploy.settings` -->
# Settings

Every service is told by environment variables alone. A value of another type or out of its bounds ends the service at
its start, with a message that names it. Lengths of time are numbers of the unit that the name ends with. `None` in a
remark means: not set.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable. ``why`` is the comment beside it in the code."""

    name: str
    kind: str
    default: str
    why: str


def groups() -> dict[str, type[BaseSettings]]:
    """Return the settings of what every service shares, and of each service that has its own."""
    own = (name for name in SERVICES if util.find_spec(f"services.{name}.settings"))
    modules = {name: importlib.import_module(f"services.{name}.settings") for name in own}
    return {"every service": Infrastructure, **{name: module.Settings for name, module in modules.items()}}


def settings(group: type[BaseSettings]) -> list[Setting]:
    """Return a group's variables in the order of the code."""
    prefix, why = group.model_config.get("env_prefix", ""), comments(inspect.getsource(group))
    return [
        Setting(
            f"{prefix}{name}".upper(),
            _kind(field.annotation),
            _default(field),
            why.get(name) or field.description or "",
        )
        for name, field in group.model_fields.items()
    ]


def page() -> str:
    """Return the text of `docs/settings.md`."""
    return "\n".join([HEAD, *(line for name, group in groups().items() for line in _section(name, settings(group)))])


def comments(source: str) -> dict[str, str]:
    """Return the comments of a class's fields: those on a field's own lines, joined."""
    found = dict(_comments(source))
    return {
        node.target.id: " ".join(
            found[line] for line in range(node.lineno, 1 + (node.end_lineno or 0)) if line in found
        )
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def _section(name: str, rows: list[Setting]) -> list[str]:
    table = [f"| `{row.name}` | {row.kind} | {row.default} | {row.why} |" for row in rows]
    return [f"## {name[0].upper()}{name[1:]}", "", "| variable | type | default | |", "|---|---|---|---|", *table, ""]


def _kind(annotation: Any) -> str:
    if isinstance(annotation, types.UnionType):
        return _kind(next(kind for kind in get_args(annotation) if kind is not types.NoneType))
    if choices := [str(choice) for choice in get_args(annotation) if isinstance(choice, str)]:
        return ", ".join(choices)
    names = {int: "integer", float: "number", str: "text", bool: "true or false", Path: "path", SecretStr: "secret"}
    return names.get(annotation) or str(getattr(annotation, "__name__", annotation))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be set"
    value = field.get_default(call_default_factory=True)
    plain = value.get_secret_value() if isinstance(value, SecretStr) else value
    return "" if plain in (None, "") else f"`{plain}`"


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` only compare; return the exit code."""
    text = page()
    if arguments != ["--check"]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == text:
        return 0
    print("docs/settings.md is not what the code says: `python -m deploy.settings` writes it again", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
