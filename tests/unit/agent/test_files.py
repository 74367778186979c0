from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from services.agent.shim.files import read, write


def test_a_file_that_many_write_at_once_is_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path, values = tmp_path / "stop.json", [{"grace_seconds": number} for number in range(40)]
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda value: write(path, value), values))
    assert read(path) in values
    assert list(tmp_path.iterdir()) == [path]
