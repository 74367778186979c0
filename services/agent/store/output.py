"""Reading what a replica wrote."""

from pathlib import Path


def piece(folder: Path, rank: int, offset: int, limit: int) -> tuple[bytes, int] | None:
    """Return bytes from an offset on and where the next begin; what was dropped is passed over. None: no output."""
    for start, path in _files(folder, rank):
        begin = max(offset, start)
        if begin < start + path.stat().st_size:
            with path.open("rb") as file:
                file.seek(begin - start)
                data = file.read(limit)
            return data, begin + len(data)
    files = _files(folder, rank)
    return (b"", max(offset, files[0][0])) if files else None


def _files(folder: Path, rank: int) -> list[tuple[int, Path]]:
    return sorted((int(path.suffix[1:]), path) for path in folder.glob(f"output-{rank}.*"))
