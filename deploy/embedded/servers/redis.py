"""Redis (or Valkey): leases only, so nothing of it is kept on disk."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.children import Program
from deploy.embedded.credentials import OPERATOR, Credentials
from deploy.embedded.files import write_private
from deploy.embedded.state import StateFolder

ANSWER_SECONDS = 1.0
LEASE_OWNER = "placement"
EVERYTHING = "~* &* +@all"
DATA = "~* &* +@read +@write +@scripting +@transaction +@connection +time +info -@dangerous -@admin"
READING = "~* resetchannels +@read +@connection -@dangerous"


@dataclass(frozen=True, slots=True)
class RedisServer:
    """One Redis server with a user for each service; see `Server`."""

    folder: StateFolder
    port: int
    credentials: Credentials
    binary: Path
    name: str = "redis"
    stuck_words: bytes = b""

    async def prepare(self) -> None:
        """Write its configuration."""
        write_private(self._configuration, "\n".join([*self._settings(), *self._users()]) + "\n")

    def program(self) -> Program:
        """What to run. Its folder is where it works: its configuration has no way to write every path."""
        return Program([str(self.binary), str(self._configuration)], working_folder=self.folder.data(self.name))

    async def answers(self) -> bool:
        """Return whether a PING with the operator's password is answered."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._ping()
        except (OSError, TimeoutError):
            return False

    async def furnish(self) -> None:
        """Nothing: its users are in its configuration."""

    async def _ping(self) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"AUTH {OPERATOR} {self.credentials.redis[OPERATOR]}\r\nPING\r\n".encode())
            return (await reader.readline(), await reader.readline()) == (b"+OK\r\n", b"+PONG\r\n")
        finally:
            writer.close()

    @property
    def _configuration(self) -> Path:
        return self.folder.data(self.name) / "redis.conf"

    def _settings(self) -> list[str]:
        return [
            "bind 127.0.0.1",
            f"port {self.port}",
            'save ""',
            "appendonly no",
            "daemonize no",
        ]

    def _users(self) -> list[str]:
        rights = {OPERATOR: EVERYTHING, LEASE_OWNER: DATA}
        named = [
            f"user {user} on >{password} {rights.get(user, READING)}"
            for user, password in self.credentials.redis.items()
        ]
        return ["user default off", *named]
