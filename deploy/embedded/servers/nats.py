"""NATS with JetStream: one account, one user a service, with the rights the catalogue gives it."""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.embedded.children import Program
from deploy.embedded.credentials import Credentials
from deploy.embedded.files import write_private
from deploy.embedded.state import StateFolder

ANSWER_SECONDS = 1.0
MOST_STORE_BYTES = 8 << 30  # of all streams together; each stream has its own, smaller bound
MOST_PAYLOAD_BYTES = 1 << 20
GARBAGE_PERCENT = "40"  # of what lives, before it is collected: it keeps each fact's subject in memory


@dataclass(frozen=True, slots=True)
class NatsServer:
    """One NATS server; see `Server`. `permissions` by user, in its configuration's words; a user without is free."""

    folder: StateFolder
    port: int
    credentials: Credentials
    binary: Path
    permissions: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    name: str = "nats"
    stuck_words: bytes = b"JetStream failed to store a msg"  # a stream that found the disk full refuses for ever

    async def prepare(self) -> None:
        """Write its configuration."""
        write_private(self._configuration, json.dumps(self._settings(), indent=1, ensure_ascii=False))

    def program(self) -> Program:
        """What to run."""
        return Program(
            [str(self.binary), "-c", str(self._configuration)], environment={"GOGC": GARBAGE_PERCENT, **os.environ}
        )

    async def answers(self) -> bool:
        """Return whether it greets, with JetStream on. It greets after JetStream has recovered."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._greets()
        except (OSError, TimeoutError):
            return False

    async def furnish(self) -> None:
        """Nothing: its users are in its configuration, and services declare their streams."""

    async def _greets(self) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            greeting = await reader.readline()
            return greeting.startswith(b"INFO ") and bool(json.loads(greeting[5:]).get("jetstream"))
        finally:
            writer.close()

    @property
    def _configuration(self) -> Path:
        return self.folder.data(self.name) / "nats.conf"  # its grammar takes JSON

    def _settings(self) -> dict[str, object]:
        return {
            "server_name": "triplane",
            "listen": f"127.0.0.1:{self.port}",
            "max_payload": MOST_PAYLOAD_BYTES,
            "jetstream": {"store_dir": str(self.folder.data(self.name)), "max_file_store": MOST_STORE_BYTES},
            "accounts": {
                "TRIPLANE": {"jetstream": "enabled", "users": [self._user(name) for name in self.credentials.nats]}
            },
        }

    def _user(self, name: str) -> dict[str, object]:
        user: dict[str, object] = {"user": name, "password": self.credentials.nats[name]}
        if name not in self.permissions:
            return user
        return {
            **user,
            "permissions": {**self.permissions[name], "allow_responses": True},
        }  # an answer to each question
