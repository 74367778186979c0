"""The fleet document of a stack: which clusters it has, and so which agents it needs."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

from deploy.embedded.failures import StackError
from deploy.embedded.files import write_private
from deploy.embedded.runtime import runtime_folder
from deploy.embedded.state import StateFolder
from schemas.spec import Document
from schemas.spec.cluster import Cluster, NodeSpec
from schemas.spec.parse import parse
from schemas.spec.text import TextRefusedError

Agents = dict[str, Mapping[str, object]]


def remember(folder: StateFolder, source: Path) -> None:
    """Check a fleet document and keep a copy for the next starts. Raises StackError with every fault."""
    try:
        text = source.read_text()
    except (OSError, UnicodeError) as error:
        raise StackError(f"{source} cannot be read: {error}") from error
    read(text, str(source))
    write_private(_copy(folder), text)


def kept(folder: StateFolder) -> str:
    """Return the text of the fleet document in force; empty when there is none."""
    return _copy(folder).read_text() if _copy(folder).exists() else ""


def read(text: str, name: str) -> list[Document]:
    """Return the documents of a text. Raises StackError with every fault."""
    try:
        parsed = parse(text)
    except TextRefusedError as error:
        raise StackError(f"{name}: {error}") from error
    faults = [f"{name}:{fault.line or piece.line}: {fault}" for piece in parsed for fault in piece.faults]
    if faults:
        raise StackError("\n".join(faults))
    return [piece.document for piece in parsed if piece.document is not None]


def agents(folder: StateFolder, documents: Iterable[Document]) -> Agents:
    """Return what each agent is told, by its post: one a node of a local cluster, one a pretended cluster."""
    clusters = [document for document in documents if isinstance(document, Cluster)]
    return dict(told for cluster in clusters for told in _agents_of(folder, cluster))


def _agents_of(folder: StateFolder, cluster: Cluster) -> Iterator[tuple[str, Mapping[str, object]]]:
    name, runtime = cluster.metadata.name, runtime_folder(folder)
    if cluster.spec.backend == "pretend":
        document = folder.data("pretend") / f"{name}.json"
        write_private(document, cluster.model_dump_json())
        yield f"agent-{name}", {"document": document, "runtime_dir": runtime / name}
    else:
        for node in cluster.spec.nodes:
            yield f"agent-{name}-{node.name}", _node(name, node, runtime / f"{name}-{node.name}", folder)


def _node(cluster: str, node: NodeSpec, runtime: Path, folder: StateFolder) -> Mapping[str, object]:
    return {
        "cluster": cluster,
        "node": node.name,
        "devices": node.devices,
        "model": node.model,
        "device_memory_mib": node.device_memory,
        "cpu_milli": node.cpu,
        "memory_mib": node.memory,
        "master_addr": "127.0.0.1",
        "runtime_dir": runtime,
        "machine_id_file": _machine(folder, f"{cluster}-{node.name}"),
    }


def _machine(folder: StateFolder, node: str) -> Path:
    """Each virtual node is a machine of its own, the same one after every start."""
    file = folder.data("machines") / node
    if not file.exists():
        write_private(file, uuid4().hex)
    return file


def _copy(folder: StateFolder) -> Path:
    return folder.root / "fleet.yaml"
