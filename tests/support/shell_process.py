"""A service as a process of its own, for tests that kill it: ``python -m tests.support.shell_process``."""

import sys
from collections.abc import Sequence

from pydantic_settings import BaseSettings, SettingsConfigDict

from libs.config import Infrastructure
from libs.service import Service, Turn, main
from schemas.base import Envelope
from tests.support.shell_services import SCOPE, a_queued
from tests.support.shell_worlds import REVISIONS


class Settings(BaseSettings):
    """``breaks_on``: the key of the fact that shows a defect."""

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_TEST_")

    breaks_on: str = ""


def build(infrastructure: Infrastructure, settings: Settings) -> Service:
    """Return admission, which notes each wish as an effect and answers it."""
    service = Service("admission", infrastructure, versions=REVISIONS, ack_wait_seconds=2.0)

    async def handle(turn: Turn, facts: Sequence[Envelope]) -> None:
        assert all(heard.key != settings.breaks_on for heard in facts), "a defect"
        keys = [heard.key for heard in facts]
        await turn.connection.execute("INSERT INTO effects (what) SELECT unnest($1::text[])", keys)
        for heard in facts:
            turn.emit(a_queued(heard.data), scope=SCOPE, key=heard.key, version=1, cause=heard)

    service.consume("admission-workload", handle)
    return service


if __name__ == "__main__":
    main(build, Settings)
    sys.exit("main returned")
