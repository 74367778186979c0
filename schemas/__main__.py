"""``python -m schemas``: write what is made from the contract; ``--check``: say what is out of date (exit 1)."""

import argparse
import json
import sys
from pathlib import Path

from schemas.compat import breaks
from schemas.render import rendered

ROOT = Path(__file__).resolve().parent.parent
MADE = ("schemas/json", "schemas/asyncapi")


def stale(root: Path) -> list[str]:
    """Return the generated files that are missing, differ, or are made from nothing any more."""
    files = rendered()
    wrong = [name for name, text in files.items() if not (root / name).is_file() or (root / name).read_text() != text]
    found = [path.relative_to(root).as_posix() for made in MADE for path in (root / made).rglob("*.json")]
    return sorted([*wrong, *(name for name in found if name not in files)])


def write(root: Path) -> list[str]:
    """Make the generated files, remove what is made from nothing any more, and return the names that changed."""
    files, changed = rendered(), stale(root)
    for name in changed:
        path = root / name
        if name not in files:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name])
    return changed


def incompatible(before: Path, root: Path) -> list[str]:
    """Return what breaks readers of an older checkout's schemas (a folder like ``schemas/json``)."""
    faults = []
    for old in sorted(before.rglob("*.json")):
        name = old.relative_to(before)
        new = root / "schemas/json" / name
        if name.parts[0] == "spec":
            continue
        if not new.is_file():
            faults.append(f"{name}: the fact is gone")
            continue
        faults += [f"{name}: {fault}" for fault in breaks(json.loads(old.read_text()), json.loads(new.read_text()))]
    return faults


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m schemas", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 when a generated file is out of date"
    )
    parser.add_argument("--compat", type=Path, metavar="FOLDER", help="compare with an older checkout's schemas/json")
    options = parser.parse_args()
    if options.compat:
        faults = incompatible(options.compat, ROOT)
        print("\n".join(faults) or "compatible")
        return 1 if faults else 0
    names = stale(ROOT) if options.check else write(ROOT)
    for name in names:
        print(f"{'out of date' if options.check else 'wrote'}: {name}")
    if options.check and names:
        print("run `make schemas` and commit the result", file=sys.stderr)
    return 1 if options.check and names else 0


if __name__ == "__main__":
    sys.exit(main())
