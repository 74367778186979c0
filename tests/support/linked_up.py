"""`python -m tests.support.linked_up STATE FLEET`: a stack whose services reach their servers by lines of a test.

The environment names the lines (``LINKS``: a port for each post and server), and how many replicas a service has.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from deploy.embedded import staffing
from deploy.embedded.foundation import Foundation
from deploy.embedded.posts import Post
from deploy.embedded.settings import Settings
from deploy.embedded.staffing import Staff
from deploy.embedded.up import Wish, run
from libs.config import Infrastructure

LINKS, REPLICAS = "TRIPLANE_TEST_LINKS", "TRIPLANE_TEST_REPLICAS"


def program(state: Path, fleet: Path) -> list[str]:
    """Return the module and its arguments."""
    return ["tests.support.linked_up", str(state), str(fleet)]


def linked(
    links: Mapping[str, Mapping[str, int]], foundation: Foundation, staff: Staff, ports: Mapping[str, int]
) -> Sequence[Post]:
    """Return the posts, each of which reaches every server by its own line."""
    return [
        replace(post, infrastructure=_by(links[post.name], post.infrastructure, ports))
        for post in staffing.posts(foundation, staff, ports)
    ]


def _by(line: Mapping[str, int], told: Infrastructure, ports: Mapping[str, int]) -> Infrastructure:
    places = {
        "nats_url": told.nats_url.replace(f":{ports['nats']}", f":{line['nats']}"),
        "redis_url": told.redis_url.get_secret_value().replace(f":{ports['redis']}/", f":{line['redis']}/"),
        "postgres_dsn": told.postgres_dsn.get_secret_value().replace(f":{ports['postgres']}/", f":{line['postgres']}/"),
    }
    return Infrastructure.model_validate({**told.model_dump(), **places})


def main(state: str, fleet: str) -> None:
    """Be the stack until SIGTERM."""
    links, replicas = (json.loads(os.environ[name]) for name in (LINKS, REPLICAS))
    wish = Wish(Path(state), fleet=Path(fleet), apart=True, replicas=replicas)
    run(wish, Settings(), partial(print, flush=True), partial(linked, links))


if __name__ == "__main__":
    main(*sys.argv[1:])
