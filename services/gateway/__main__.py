"""The gateway as a process; with ``openapi [--check]``: write its interface to docs/openapi.json, or compare."""

import json
import sys
from pathlib import Path

from libs.service import main
from services.gateway.app import build, create_api
from services.gateway.settings import Settings

OPENAPI = Path(__file__).parents[2] / "docs" / "openapi.json"


def openapi(*, check: bool) -> int:
    """Write the description of the HTTP interface; with ``check``: return 1 when the kept one is not up to date."""
    text = json.dumps(create_api().openapi(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if not check:
        OPENAPI.write_text(text)
        return 0
    is_current = OPENAPI.exists() and OPENAPI.read_text() == text
    if not is_current:
        print("docs/openapi.json is old: run python -m services.gateway openapi", file=sys.stderr)
    return 0 if is_current else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["openapi"]:
        sys.exit(openapi(check="--check" in sys.argv))
    main(build, Settings)
