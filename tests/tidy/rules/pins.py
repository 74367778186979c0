"""Pins name one version and its hashes for every dependency, and no place to fetch it from."""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PIN: Final = re.compile(r"([a-z0-9-]+)==(\S+)( ; [^\\]+)? \\")
HASH: Final = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def strange_lines(content: str) -> list[str]:
    """Return the lines of a file of pins that are neither a pin nor a hash."""
    return [line for line in content.splitlines() if not PIN.fullmatch(line) and not HASH.fullmatch(line)]


def unhashed(content: str) -> list[str]:
    """Return the pins that no hash follows."""
    lines = [*content.splitlines(), ""]
    return [line for line, following in pairwise(lines) if PIN.fullmatch(line) and not HASH.fullmatch(following)]


def versions(content: str) -> dict[str, set[str]]:
    """Return the versions pinned for each name; different Pythons may have different ones."""
    found: dict[str, set[str]] = {}
    for match in filter(None, map(PIN.fullmatch, content.splitlines())):
        found.setdefault(match[1], set()).add(match[2])
    return found


def unmet(requirements: Iterable[str], pinned: Mapping[str, set[str]]) -> list[str]:
    """Return the requirements that no pin, or a pin of another version, answers."""
    wanted = [Requirement(text) for text in requirements]
    return [str(r) for r in wanted if not _met(r, pinned.get(canonicalize_name(r.name), set()))]


def _met(requirement: Requirement, pinned: set[str]) -> bool:
    return bool(pinned) and all(requirement.specifier.contains(Version(version)) for version in pinned)
