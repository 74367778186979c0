"""What a backup file is: one tar, mode 0600, with a manifest first. It holds all passwords and tokens of the stack."""

import io
import os
import re
import tarfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from deploy.embedded.failures import NoBackupError, StateRefusedError
from deploy.embedded.state import FORMAT as STATE_FORMAT

FORMAT = 1  # raise it when an older release could not restore what this one writes
MANIFEST, LEDGER = "manifest.json", "ledger.dump"
POSTGRES_MAJOR = 18
SMALL_FILES = re.compile(r"credentials\.json|fleet\.yaml|machines/[a-z0-9-]{1,128}")  # of the state directory
MOST_SMALL_BYTES = 16 << 20


class Manifest(BaseModel):
    """What a reader has to know before it reads on."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    state_format: int = STATE_FORMAT
    postgres: int = POSTGRES_MAJOR
    made_at: datetime


def write(target: Path, manifest: Manifest, small: Mapping[str, bytes], ledger: Path) -> None:
    """Write a backup whole or not at all; a file that is there is never replaced. Raises OSError."""
    fresh = target.with_name(f".{target.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            _fill(file, {MANIFEST: manifest.model_dump_json().encode(), **small}, ledger)
            file.flush()
            os.fsync(file.fileno())
        os.link(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)


def manifest_of(source: Path) -> Manifest:
    """Return the manifest of a backup that this release can restore. Raises NoBackupError, StateRefusedError."""
    try:
        with tarfile.open(source) as archive:
            found = Manifest.model_validate_json(_bytes(archive, MANIFEST))
    except (OSError, tarfile.TarError, KeyError, ValidationError) as error:
        raise NoBackupError(
            f"{source} is no backup of a stack: {error}. Name a file that `triplane backup` wrote."
        ) from error
    limits = {"format": FORMAT, "state_format": STATE_FORMAT, "postgres": POSTGRES_MAJOR}
    for name, most in limits.items():
        if (has := getattr(found, name)) > most:
            raise StateRefusedError(
                f"{source} was made by a newer release: its {name} is {has}, this release reads up to {most}. "
                "Restore it with that release."
            )
    return found


def small_files(source: Path) -> dict[str, bytes]:
    """Return the small files by their path in the state directory. Raises NoBackupError on a path not of ours."""
    with tarfile.open(source) as archive:
        names = [name for name in archive.getnames() if name not in {MANIFEST, LEDGER}]
        foreign = [name for name in names if not SMALL_FILES.fullmatch(name)]
        if foreign:
            raise NoBackupError(f"{source} holds {foreign[0]!r}, which is no part of a backup.")
        return {name: _bytes(archive, name) for name in names}


def take_ledger(source: Path, target: Path) -> None:
    """Write the ledger's dump out, mode 0600. Raises OSError, NoBackupError when it is missing."""
    with tarfile.open(source) as archive:
        file = archive.extractfile(LEDGER) if LEDGER in archive.getnames() else None
        if file is None:
            raise NoBackupError(f"{source} holds no ledger.")
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            while piece := file.read(1 << 20):
                out.write(piece)


def _fill(file: io.BufferedWriter, small: Mapping[str, bytes], ledger: Path) -> None:
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in small.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
        archive.add(ledger, LEDGER, recursive=False)


def _bytes(archive: tarfile.TarFile, name: str) -> bytes:
    entry = archive.getmember(name)
    file = archive.extractfile(entry) if entry.size <= MOST_SMALL_BYTES else None
    if file is None:
        raise KeyError(f"{name} is no small file")
    return file.read()
