"""An agent put together.

A service manager must end the agent alone, never its shims with it: with systemd, ``KillMode=process``.
"""

from typing import Final
from uuid import uuid4

from libs.bus.ports import Bus
from libs.config import Infrastructure
from libs.service import Service
from schemas.ids import device_id
from schemas.runtime import ObservedDevice
from schemas.spec.cluster import Cluster
from schemas.spec.parse import parse
from services.agent.core.identity import Identity
from services.agent.handlers.calls import Calls, run_owner
from services.agent.handlers.door import Door
from services.agent.handlers.looks import Looks
from services.agent.handlers.notices import Notices
from services.agent.handlers.pretended import Pretended
from services.agent.settings import Settings
from services.agent.store import groups
from services.agent.store.devices import DeclaredDevices, Devices
from services.agent.store.folder import RuntimeFolder
from services.agent.store.node import Node
from services.agent.store.nvml import NvmlDevices

NOTICE_SECONDS: Final = 5.0  # a run's end wakes the loop; this finds what no wake-up told
GREET_SECONDS: Final = 5.0
TICK_SECONDS: Final = 0.05  # of pretended clusters
TIDY_SECONDS: Final = 600.0
RUNS: Final = "triplane_agent_runs"


def build(infrastructure: Infrastructure, settings: Settings, *, bus: Bus | None = None) -> Service:
    """Return the service, ready to start: one node, or a pretended cluster where a document asks for one.

    The start raises FolderTakenError when another agent has the runtime folder.
    """
    service = Service("agent", infrastructure, postgres=False, bus=bus)
    if settings.document is None:
        _node(service, settings)
    else:
        _cluster(service, settings, settings.document.read_text(encoding="utf-8"))
    return service


def _node(service: Service, settings: Settings) -> None:
    identity = _identity(settings)
    folder = RuntimeFolder(settings.runtime_dir, identity.boot, scratch=settings.scratch_dir)
    parent = groups.find_parent(groups.name_of(identity.node, settings.runtime_dir))
    node = Node(folder, _devices(settings, identity), parent)
    notices = Notices(service, identity, node, settings)
    looks = Looks(node)
    calls = Calls(identity, node, notices, settings, run_owner(settings), looks=looks, tracer=service.telemetry.tracer)
    door = Door(service, identity, node, notices, settings, looks=looks)
    _live(service, node, notices, door)
    service.metrics.gauge(RUNS, "Runs that have not ended.", lambda: notices.watched)
    for name in ("launch", "find", "stop", "seal", "holders", "mark", "look", "logs"):
        service.answer_plain(f"call.node.{identity.node}.{name}", getattr(calls, name))
    notices.wake = service.loop("notices", notices.notice, every=NOTICE_SECONDS)
    service.loop("reports", notices.report, every=settings.report_seconds)
    service.loop("greeting", notices.greet, every=GREET_SECONDS)
    service.loop("tidy", notices.tidy, every=TIDY_SECONDS)


def _cluster(service: Service, settings: Settings, text: str) -> None:
    documents = [piece.document for piece in parse(text)]
    assert len(documents) == 1, "one Cluster document, and nothing else"
    assert isinstance(documents[0], Cluster), "a Cluster document"
    boot = uuid4().hex
    folder = RuntimeFolder(settings.runtime_dir, boot)
    pretended = Pretended(service, documents[0], settings, boot)
    pretended.open()
    service.metrics.gauge(RUNS, "Runs that have not ended.", lambda: pretended.alive)
    _hold(service, folder)
    service.loop("ticks", pretended.tick, every=TICK_SECONDS)
    service.loop("reports", pretended.report, every=settings.report_seconds)
    service.loop("greeting", pretended.greet, every=GREET_SECONDS)


def _hold(service: Service, folder: RuntimeFolder) -> None:
    async def take() -> None:
        folder.open()

    async def leave() -> None:
        folder.close()

    service.on_start(take)
    service.on_stop(leave)


def _live(service: Service, node: Node, notices: Notices, door: Door) -> None:
    async def leave_groups() -> None:
        groups.leave(node.groups_parent)

    _hold(service, node.folder)
    service.on_start(door.open)
    service.on_stop(leave_groups)
    service.on_stop(notices.close)
    service.on_stop(door.close)


def _identity(settings: Settings) -> Identity:
    boot = settings.boot_id_file.read_text(encoding="ascii").strip()
    try:
        machine = settings.machine_id_file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        machine = f"{settings.cluster}/{settings.node}"
    return Identity(settings.cluster, settings.node, machine, boot, uuid4().hex)


def _devices(settings: Settings, identity: Identity) -> Devices:
    if settings.devices is None:
        return NvmlDevices(identity.node, library=settings.nvml_library, seconds=settings.nvml_seconds)
    uuids = [f"GPU-{settings.cluster}-{settings.node}-{index}" for index in range(settings.devices)]
    return DeclaredDevices(
        tuple(
            ObservedDevice(
                device=device_id(identity.node, uuid),
                index=index,
                uuid=uuid,
                model=settings.model,
                memory_mib=settings.device_memory_mib,
            )
            for index, uuid in enumerate(uuids)
        )
    )
