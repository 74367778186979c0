"""The fleet document of a stack: which clusters it has, and so which agents it needs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from deploy.embedded.failures import BadDocumentError
from deploy.embedded.files import write_private
from deploy.embedded.runtime import runtime_folder
from deploy.embedded.state import StateFolder
from schemas.spec import Document
from schemas.spec.cluster import Cluster, NodeSpec
from schemas.spec.parse import parse
from schemas.spec.text import TextRefusedError

Agents = dict[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet document as its file holds it. ``is_new``: it was given for this start and is not kept yet."""

    file: Path
    text: str
    documents: tuple[Document, ...]
    is_new: bool

    @property
    def remedy(self) -> str:
        """What to do when it is refused."""
        return "mend it; it was not kept" if self.is_new else "start with --fleet FILE, which takes its place"


def chosen(folder: StateFolder, given: Path | None) -> Fleet:
    """Return the fleet document that is given, else the one kept. Raises BadDocumentError with every fault."""
    file = given or _copy(folder)
    if given is None and not file.exists():
        return Fleet(file, "", (), is_new=False)
    try:
        text = file.read_text()
    except (OSError, UnicodeError) as error:
        raise BadDocumentError(f"{file} cannot be read: {error}; name a file of documents with --fleet") from error
    found = Fleet(file, text, tuple(read(text, str(file))), is_new=given is not None)
    if given is not None and not found.documents:
        raise BadDocumentError(f"{file} holds no document; write a Cluster, or leave --fleet out")
    return found


def keep(folder: StateFolder, accepted: Fleet) -> None:
    """Keep a copy of a document for the next starts."""
    if accepted.is_new:
        write_private(_copy(folder), accepted.text)


def read(text: str, name: str) -> list[Document]:
    """Return the documents of a text. Raises BadDocumentError with every fault."""
    try:
        parsed = parse(text)
    except TextRefusedError as error:
        raise BadDocumentError(f"{name}: {error}") from error
    faults = [f"{name}:{fault.line or piece.line}: {fault}" for piece in parsed for fault in piece.faults]
    if faults:
        raise BadDocumentError("\n".join(faults))
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
