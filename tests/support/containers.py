"""The files that put the services into containers, as data."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
COMPOSE: Final = ROOT / "docker-compose.yml"
DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
VARIABLE: Final = re.compile(r"\$\{(\w+):-([^}]*)\}")


def compose() -> dict[str, Any]:
    """Return the compose file with anchors and merges resolved, variables at their defaults."""
    text = VARIABLE.sub(lambda found: found[2], COMPOSE.read_text(encoding="utf-8"))
    return dict(yaml.safe_load(text))


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile, its continued lines joined."""

    word: str
    rest: str

    @property
    def arguments(self) -> list[str]:
        """The words after the flags."""
        return [word for word in shlex.split(self.rest) if not word.startswith("--")]

    @property
    def listed(self) -> list[str]:
        """The words of its JSON form."""
        words = json.loads(self.rest[self.rest.index("[") :])
        return [str(word) for word in words]


@dataclass(frozen=True, slots=True)
class Stage:
    """What follows one FROM."""

    name: str
    base: str
    instructions: tuple[Instruction, ...]

    def all(self, word: str) -> list[Instruction]:
        """Return the instructions of one kind, in order."""
        return [each for each in self.instructions if each.word == word]

    def only(self, word: str) -> Instruction:
        """Return the one instruction of a kind."""
        (found,) = self.all(word)
        return found


def stages(text: str) -> list[Stage]:
    """Return the stages of a Dockerfile."""
    found: list[tuple[str, list[Instruction]]] = [("", [])]
    for instruction in _instructions(text):
        if instruction.word == "FROM":
            found.append((instruction.rest, []))
        else:
            found[-1][1].append(instruction)
    return [Stage(line.partition(" AS ")[2], line.partition(" AS ")[0], tuple(each)) for line, each in found[1:]]


def image() -> Stage:
    """Return the stage that becomes a service's image: the last."""
    return stages(DOCKERFILE.read_text(encoding="utf-8"))[-1]


def _instructions(text: str) -> list[Instruction]:
    bare = "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    lines = re.sub(r"\\\n\s*", "", bare).splitlines()
    return [Instruction(line.partition(" ")[0].upper(), line.partition(" ")[2].strip()) for line in lines]
