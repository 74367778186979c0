"""`python -m deploy.embedded.demo.openb.cut FOLDER`: cut the sample that the repository carries from the full lists.

Nodes: every eighth, and the first of each model. Pods: of those that ask for whole GPUs every fifteenth, and all with
several GPUs that come at a third of these places. Lines are copied as they are; nothing is drawn by chance.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.embedded.demo.openb.lists import NODE_LIST, SAMPLE, Row, is_whole, pod_list, rows

NODE_STEP, POD_STEP, SEVERAL_STEP = 8, 15, 3
VARIANT = "gpuspec33"


def main() -> None:
    """Write the sample beside this file."""
    home = Path(sys.argv[1])
    SAMPLE.mkdir(exist_ok=True)
    _write(SAMPLE / NODE_LIST, _nodes(rows(home / NODE_LIST)))
    for variant in ("default", VARIANT):
        _write(SAMPLE / pod_list(variant), _pods(rows(home / pod_list(variant))))


def _nodes(listed: Sequence[Row]) -> list[Row]:
    firsts = {row["model"]: at for at, row in reversed(list(enumerate(listed)))}
    return [row for at, row in enumerate(listed) if at % NODE_STEP == 0 or at == firsts[row["model"]]]


def _pods(listed: Sequence[Row]) -> list[Row]:
    whole = [row for row in listed if is_whole(row)]
    several = [row["name"] for row in whole if row["num_gpu"] != "1"][::SEVERAL_STEP]
    return [row for at, row in enumerate(whole) if at % POD_STEP == 0 or row["name"] in several]


def _write(path: Path, kept: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(kept[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)


if __name__ == "__main__":
    main()
