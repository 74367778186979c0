"""The `triplane` command as people run it, against a gateway."""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.gateways import ADMIN, Asking


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """Runs the command against a gateway."""

    asking: Asking
    home: Path

    async def start(self, *words: str, token: str = ADMIN) -> asyncio.subprocess.Process:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PYTHONPATH": str(Path.cwd()),
            "TRIPLANE_ADDRESS": self.asking.address,
            "TRIPLANE_TOKEN": token,
        }
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cli.main", *words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )

    async def run(self, *words: str, given: str = "", token: str = ADMIN) -> Done:
        process = await self.start(*words, token=token)
        out, err = await process.communicate(given.encode())
        return Done(process.returncode or 0, out.decode(), err.decode())

    def file(self, name: str, text: str) -> str:
        path = self.home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)
