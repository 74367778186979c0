"""The lists of the openb trace: nodes with GPUs, and the pods that ask for whole GPUs. Reads files, decides nothing."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.failures import StackError

SAMPLE = Path(__file__).parent / "sample"
NODE_LIST = "openb_node_list_gpu_node.csv"
WHOLE = "1000"  # thousandths of a GPU: nothing less
FAILED = "Failed"

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Node:
    """A node as listed."""

    name: str
    cpu_milli: int
    memory_mib: int
    devices: int
    model: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that asks for whole GPUs. Times in seconds of the trace; ``models`` empty: any will do."""

    name: str
    cpu_milli: int
    memory_mib: int
    devices: int
    models: tuple[str, ...]
    service: str  # the quality of service: LS, BE, Burstable, Guaranteed
    failed: bool
    created: float
    lasted: float


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes and pods, the pods in the order in which they came; ``listed``: how many lines the list of pods has."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    listed: int

    @property
    def length(self) -> float:
        """Seconds from the start of the trace to its last end."""
        return max((pod.created + pod.lasted for pod in self.pods), default=0.0)


def read(folder: Path, variant: str) -> Trace:
    """Return the trace in a folder, or in its subfolder csv. Raises StackError when a list is missing or broken."""
    inner = folder / "csv"
    home = inner if inner.is_dir() else folder
    nodes, pods = rows(home / NODE_LIST), rows(home / pod_list(variant))
    try:
        found = sorted((_pod(row) for row in pods if is_whole(row)), key=lambda pod: (pod.created, pod.name))
        return Trace(tuple(_nodes(nodes)), tuple(found), len(pods))
    except (KeyError, ValueError) as error:
        raise StackError(f"{home} does not hold lists of the openb trace with times: {error!r}") from error


def pod_list(variant: str) -> str:
    """Return the name of a list of pods, such as default or gpuspec33."""
    return f"openb_pod_list_{variant}.csv"


def rows(path: Path) -> Sequence[Row]:
    """Return the lines of a list. Raises StackError when it cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeError, csv.Error) as error:
        raise StackError(f"{path} cannot be read: {error}") from error


def is_whole(row: Row) -> bool:
    """Return whether a pod asks for whole GPUs, and for at least one."""
    return int(row["num_gpu"]) >= 1 and row["gpu_milli"] == WHOLE


def _nodes(listed: Iterable[Row]) -> Iterator[Node]:
    for row in listed:
        if int(row["gpu"]) > 0:
            yield Node(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])


def _pod(row: Row) -> Pod:
    """It lasts from when it was scheduled to when it was deleted; one never scheduled, from when it was created."""
    begun = float(row["scheduled_time"] or row["creation_time"])
    return Pod(
        name=row["name"],
        cpu_milli=int(row["cpu_milli"]),
        memory_mib=int(row["memory_mib"]),
        devices=int(row["num_gpu"]),
        models=tuple(dict.fromkeys(name for name in row["gpu_spec"].split("|") if name)),
        service=row["qos"],
        failed=row["pod_phase"] == FAILED,
        created=float(row["creation_time"]),
        lasted=max(0.0, float(row["deletion_time"]) - begun),
    )
