"""PostgreSQL: the ledger. One database, one role and one schema a service, passwords by SCRAM, TCP on loopback."""

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from deploy.embedded.binaries import postgres
from deploy.embedded.children import Program
from deploy.embedded.credentials import OPERATOR, Credentials
from deploy.embedded.failures import StackError
from deploy.embedded.files import write_private
from deploy.embedded.servers import roles
from deploy.embedded.servers.identity import Identity
from deploy.embedded.state import StateFolder

ANSWER_SECONDS = 2.0
CONNECT_SECONDS = 30.0  # where the machine is busy a login takes seconds
DATABASE = "triplane"
UNREACHABLE = (  # the last: a connection that is cut while a statement is under way
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
ACCESS = "host all all 127.0.0.1/32 scram-sha-256\n"  # nobody else, no socket file, no trust
PARAMETERS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # a socket's path is limited to about 107 bytes
    "max_connections": "200",
    "password_encryption": "scram-sha-256",
    "fsync": "on",
    "jit": "off",  # statements are short
    "log_timezone": "UTC",
    "timezone": "UTC",
}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """One PostgreSQL server; see `Server`. As root it runs under an `Identity` that is not root."""

    folder: StateFolder
    port: int
    credentials: Credentials
    identity: Identity
    name: str = "postgres"
    stuck_words: bytes = b""

    async def prepare(self) -> None:
        """Make the data folder on the first start, whole or not at all. Raises StackError."""
        self.identity.open_path(self.folder.root)
        self.identity.own(self._home)
        if not self._data.exists():
            await self._initialise()
        write_private(self._data / "pg_hba.conf", ACCESS)
        self.identity.own(self._data / "pg_hba.conf")

    def program(self) -> Program:
        """What to run. SIGINT is its fast shutdown: clients are cut, data is safe."""
        chosen = {**PARAMETERS, "port": str(self.port)}
        options = [word for key, value in chosen.items() for word in ("-c", f"{key}={value}")]
        return self.identity.program(
            [str(postgres("postgres")), "-D", str(self._data), *options],
            stop_signal=signal.SIGINT,
            working_folder=self._home,
        )

    async def answers(self) -> bool:
        """Return whether the operator can log in."""
        try:
            connection = await self.connect("postgres", seconds=ANSWER_SECONDS)
        except UNREACHABLE:
            return False
        await connection.close()
        return True

    async def furnish(self) -> None:
        """Make the database, the roles and their schemas where they are missing."""
        try:
            await roles.furnish(self.connect, DATABASE, self.credentials.postgres)
        except UNREACHABLE as error:  # also when it dies while it is being furnished
            raise StackError(f"postgres cannot be furnished: {error!r}") from error

    async def connect(
        self, database: str = DATABASE, *, seconds: float = CONNECT_SECONDS
    ) -> "asyncpg.Connection[asyncpg.Record]":
        """Log in as the operator, who may do everything. Raises OSError, TimeoutError, asyncpg.PostgresError."""
        return await asyncpg.connect(
            host="127.0.0.1",
            port=self.port,
            user=OPERATOR,
            password=self.credentials.postgres[OPERATOR],
            database=database,
            ssl=False,
            timeout=seconds,
        )

    @property
    def _home(self) -> Path:
        return self.folder.data(self.name)

    @property
    def _data(self) -> Path:
        return self._home / "data"

    async def _initialise(self) -> None:
        fresh, password = self._home / "fresh", self._home / "password"
        shutil.rmtree(fresh, ignore_errors=True)
        write_private(password, self.credentials.postgres[OPERATOR])
        self.identity.own(password)
        try:
            await self._run_initdb(fresh, password)
        finally:
            password.unlink()
        fresh.rename(self._data)

    async def _run_initdb(self, fresh: Path, password: Path) -> None:
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        who = ["--username", OPERATOR, "--pwfile", str(password)]
        arguments = [str(postgres("initdb")), "-D", str(fresh), *who, *options]
        command = self.identity.program(arguments, working_folder=self._home)
        code, output = await self.identity.output_of(command)
        if code != 0:
            raise StackError(f"initdb failed: {output.strip()[-500:]}")
