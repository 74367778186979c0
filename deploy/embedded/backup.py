"""`backup` and `restore`: all a stack must not lose, in one file. Streams and leases are made again from the ledger."""

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deploy.embedded import archive, ledger
from deploy.embedded.archive import Manifest
from deploy.embedded.failures import InTheWayError, NotUpError, StackError
from deploy.embedded.files import write_private
from deploy.embedded.servers.postgres import PostgresServer
from deploy.embedded.state import StateFolder, held, holder
from services.placement.store.renewal import lift_stop

TERM: Final = 1 << 32  # epochs drawn after a restore are above all that were drawn before it and are not in the backup
# the time is in it since one backup may be restored twice: far more epochs than are drawn in a second lie in one
RESTORED = """
SELECT setval('placement.epochs', greatest(
    last_value + $1, extract(epoch FROM clock_timestamp() - timestamptz '2025-01-01')::bigint * 16384
))
FROM placement.epochs
"""
STOP = """
INSERT INTO placement.stops (device, lease_grant, lease_epoch, ledger_epoch)
SELECT '*', 'restored from a backup', last_value, coalesce((SELECT max(last_epoch) FROM placement.devices), 0)
FROM placement.epochs
"""
HEARD_ANEW = """
UPDATE placement.nodes SET heard_at = now() WHERE heard_at IS NOT NULL;
UPDATE health.nodes SET heard_at = now() WHERE heard_at IS NOT NULL;
UPDATE inventory.nodes SET heard_at = now() WHERE heard_at IS NOT NULL;
"""
# nodes take no order about their marks that is older than what they were told since the backup: all are told again
MARKS_ANEW = """
UPDATE inventory.nodes
SET moves = greatest(moves + 1, extract(epoch FROM clock_timestamp() - timestamptz '2025-01-01')::int),
    marks_due_at = now();
UPDATE inventory.moves m
SET number = n.moves, info = CASE WHEN info ->> 'state' = 'Marked' THEN info || '{"state": "Held"}' ELSE info END
FROM inventory.nodes n WHERE m.open AND n.node = m.node;
"""
HAS_MARKS = """
SELECT EXISTS (
    SELECT FROM information_schema.columns
    WHERE (table_schema, table_name, column_name) = ('inventory', 'nodes', 'marks_due_at')
)
"""
HAS_LEDGER = "SELECT to_regclass('placement.stops') IS NOT NULL"
STANDING = "SELECT device, lease_epoch, ledger_epoch, since FROM placement.stops WHERE lifted_at IS NULL ORDER BY id"
UNHEARD = """
SELECT name FROM placement.nodes
WHERE NOT retired AND (told_at IS NULL OR told_at <= (SELECT max(since) FROM placement.stops WHERE lifted_at IS NULL))
ORDER BY name
"""
ASIDE = "before-restore"
SHOWN = 8


async def back_up(folder: StateFolder, target: Path) -> str:
    """Write a backup of a running or stopped stack and return what to say. Raises StackError."""
    if target.exists():
        raise InTheWayError(f"{target} exists. Name another file: a backup never replaces one.")
    dump = folder.root / f".dump-{time.monotonic_ns()}"
    try:
        async with ledger.readable(folder) as server:
            write_private(dump, "")  # closed to others before it holds anything
            await ledger.dump(server, dump)
        archive.write(target, Manifest(made_at=datetime.now(UTC)), _small_files(folder), dump)
    except OSError as error:
        raise StackError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        dump.unlink(missing_ok=True)
    size = target.stat().st_size / 2**20
    return f"Backed up {folder.root} into {target} ({size:.1f} MiB). Keep it as safe as the secrets in it."


async def restore(folder: StateFolder, source: Path, *, replace: bool) -> str:
    """Make the stack of a backup, stopped, and return what to say. New grants stay stopped until a person lifts that.

    Raises StackError: a stack runs, the backup is of a newer format, or there is a ledger already and not `replace`.
    """
    made = archive.manifest_of(source).made_at
    small = archive.small_files(source)
    with held(folder):
        aside = _make_room(folder, replace=replace)
        try:
            await _fill(folder, source, small)
        except BaseException:
            _undo(folder, aside)
            raise
    kept = f" What was there before is in {aside}." if aside else ""
    return (
        f"Restored {folder.root} as of {made:%Y-%m-%d %H:%M:%S} UTC.{kept} Start it with `triplane up`. New grants are "
        "stopped until you have looked at what runs on the nodes: then `triplane lift-stop --by YOUR-NAME`."
    )


def _stopped_by(device: str, lease_epoch: int, ledger_epoch: int, since: datetime) -> str:
    why = "the ledger was restored from a backup"
    if device != "*":
        why = f"the lease of {device} has epoch {lease_epoch}, and the ledger {ledger_epoch}"
    return f"Since {since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: {why}."


async def lift(folder: StateFolder, person: str, *, unheard: bool) -> str:
    """Let grants go on after a ledger went back, and return what to say. Raises StackError where a node is silent."""
    if holder(folder) is None:
        raise NotUpError(
            f"No stack is up on {folder.root}. Start one with `triplane up`: its nodes must be heard first."
        )
    connection = await ledger.of_running(folder).connect()
    try:
        stops = await connection.fetch(STANDING)
        silent = [row["name"] for row in await connection.fetch(UNHEARD)] if stops else []
        if silent and not unheard:
            raise StackError(_not_heard(silent))
        await connection.execute("SET search_path = placement")
        lifted = await lift_stop(connection, person)
    finally:
        await connection.close()
    told = [_stopped_by(row["device"], row["lease_epoch"], row["ledger_epoch"], row["since"]) for row in stops]
    return "\n".join(
        [*told[:SHOWN], f"Lifted {lifted} by {person}. Grants go on." if lifted else "Nothing is stopped."]
    )


def _not_heard(silent: list[str]) -> str:
    more = f" and {len(silent) - SHOWN} more" if len(silent) > SHOWN else ""
    return (
        f"Has not told what it runs since the stop: {', '.join(silent[:SHOWN])}{more}. What runs there is not known. "
        "Wait for them, or lift it with --unheard when you know that nothing does."
    )


def _small_files(folder: StateFolder) -> dict[str, bytes]:
    machines = sorted((folder.root / "machines").glob("[!.]*"))
    found = [folder.credentials_file, folder.root / "fleet.yaml", *machines]
    return {str(path.relative_to(folder.root)): path.read_bytes() for path in found if path.exists()}


def _make_room(folder: StateFolder, *, replace: bool) -> Path | None:
    """Move what is there aside: the ledger, and the streams, which must not be newer than the ledger."""
    there = [folder.root / name for name in ("postgres", "nats", "machines", "credentials.json", "fleet.yaml")]
    found = [path for path in there if path.exists()]
    if not (folder.root / "postgres" / "data").exists():
        shutil.rmtree(folder.root / "nats", ignore_errors=True)
        return None
    if not replace:
        raise InTheWayError(
            f"{folder.root} holds a ledger. With --replace it is moved aside; or name another by --state."
        )
    aside = folder.data(f"{ASIDE}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
    for path in found:
        path.rename(aside / path.name)
    return aside


async def _fill(folder: StateFolder, source: Path, small: dict[str, bytes]) -> None:
    for name, content in small.items():
        if "/" in name:
            folder.data(name.partition("/")[0])
        write_private(folder.root / name, content.decode())
    dump = folder.root / f".dump-{time.monotonic_ns()}"
    try:
        archive.take_ledger(source, dump)
        async with ledger.alone(folder) as server:
            await ledger.load(server, dump)
            await _begin_a_term(server)
    finally:
        dump.unlink(missing_ok=True)


async def _begin_a_term(server: PostgresServer) -> None:
    """Raise the epochs above all that may have been drawn since the backup, and stop new grants (R12).

    Whom the backup knows as silent may have been heard since: silence counts from now. Who owned a node since the
    backup does so no more: each node is told whose it is.
    """
    connection = await server.connect()
    try:
        if await connection.fetchval(HAS_LEDGER):
            async with connection.transaction():
                await connection.execute(STOP)
                await connection.execute(RESTORED, TERM)
                await connection.execute(HEARD_ANEW)
                if await connection.fetchval(HAS_MARKS):
                    await connection.execute(MARKS_ANEW)
    finally:
        await connection.close()


def _undo(folder: StateFolder, aside: Path | None) -> None:
    """Leave the directory as it was: no half of a ledger."""
    for name in ("postgres", "machines"):
        shutil.rmtree(folder.root / name, ignore_errors=True)
    for name in ("credentials.json", "fleet.yaml"):
        (folder.root / name).unlink(missing_ok=True)
    for path in aside.iterdir() if aside else ():
        path.rename(folder.root / path.name)
    if aside:
        aside.rmdir()
