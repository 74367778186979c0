"""``python -m deploy.compose [--folder FOLDER]``: write what `docker-compose.yml` mounts. Safe to repeat."""

import argparse
import sys
from pathlib import Path

from deploy.compose import folder
from deploy.compose.credentials import KeptCredentialsError, kept_or_new
from deploy.compose.render import files


def main(arguments: list[str]) -> int:
    """Write the folder; return the exit code."""
    about = "Write the credentials and configuration that docker-compose.yml mounts."
    asked = argparse.ArgumentParser(prog="python -m deploy.compose", description=about)
    asked.add_argument("--folder", type=Path, default=folder.DEFAULT, help="default: %(default)s")
    root: Path = asked.parse_args(arguments).folder
    try:
        folder.open_private(root)
        written = folder.fill(root, files(kept_or_new(root)))
    except (OSError, KeptCredentialsError) as error:
        print(f"{root} was not written: {error}", file=sys.stderr)
        return 1
    print(f"{root}: wrote {', '.join(written)}." if written else f"{root}: nothing has changed.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
