"""Documents keep their form, and their links lead somewhere."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ADR: Final = re.compile(r"\d{4}-[a-z0-9]+(-[a-z0-9]+)*\.md")
SECTIONS: Final = ("Context", "Decision", "Consequences", "Alternatives", "Enforced by")
HEADING: Final = re.compile(r"^#+\s+(.+?)\s*$", re.MULTILINE)
LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`[^`\n]*`")


def headings(content: str) -> list[str]:
    """Return the headings of a page, in order, without those inside code."""
    return HEADING.findall(FENCE.sub("", content))


def adr_faults(name: str, content: str) -> list[str]:
    """Return what a decision record lacks: a name like `0001-say-it-once.md`, a title, words in its sections."""
    faults = [] if ADR.fullmatch(name) else ["is not named NNNN-imperative-title.md"]
    title = re.match(r"# .+\n", content)
    faults += [] if title else ["has no title on its first line"]
    return faults + [f"has no words under {section}" for section in SECTIONS if not _words_under(section, content)]


def _words_under(section: str, content: str) -> bool:
    part = re.search(rf"^##\s+{section}\s*$(.*?)(?=^##\s|\Z)", content, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    return part is not None and bool(part[1].strip())


def twice_numbered(names: Iterable[str]) -> list[str]:
    """Return the numbers that two decision records share."""
    numbers = [name[:4] for name in names]
    return sorted({number for number in numbers if numbers.count(number) > 1})


def lost_links(place: Path, content: str, root: Path) -> list[str]:
    """Return the relative links of a page that lead to no file, or to no heading of that file."""
    bare = CODE.sub("", FENCE.sub("", content))
    targets = [first or second for first, second in LINK.findall(bare)]
    return [t for t in targets if not re.match(r"[a-z]+:", t) and not _leads_somewhere(place, t, root)]


def _leads_somewhere(place: Path, target: str, root: Path) -> bool:
    path, _, anchor = target.partition("#")
    found = root / place if not path else (root / place).parent / path
    if not found.exists():
        return False
    return (
        not anchor or found.suffix != ".md" or anchor in {_slug(h) for h in headings(found.read_text(encoding="utf-8"))}
    )


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
