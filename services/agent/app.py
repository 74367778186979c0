"""One node's agent, put together.

A service manager must end the agent alone, never its shims with it: with systemd, ``KillMode=process``.
"""

from typing import Final
from uuid import uuid4

from libs.bus.ports import Bus
from libs.config import Infrastructure
from libs.service import Service
from schemas.ids import device_id
from schemas.runtime import ObservedDevice
from services.agent.core.identity import Identity
from services.agent.handlers.calls import Calls, run_owner
from services.agent.handlers.door import Door
from services.agent.handlers.notices import Notices
from services.agent.settings import Settings
from services.agent.store import groups
from services.agent.store.devices import DeclaredDevices, Devices
from services.agent.store.folder import RuntimeFolder
from services.agent.store.node import Node
from services.agent.store.nvml import NvmlDevices

NOTICE_SECONDS: Final = 5.0  # a run's end wakes the loop; this finds what no wake-up told
GREET_SECONDS: Final = 5.0
TIDY_SECONDS: Final = 600.0


def build(infrastructure: Infrastructure, settings: Settings, *, bus: Bus | None = None) -> Service:
    """Return the service, ready to start. Raises FolderTakenError at the start when another agent has the folder."""
    service = Service("agent", infrastructure, postgres=False, bus=bus)
    identity = _identity(settings)
    folder = RuntimeFolder(settings.runtime_dir, identity.boot, scratch=settings.scratch_dir)
    node = Node(folder, _devices(settings, identity), groups.find_parent(identity.node))
    notices = Notices(service, identity, node, settings)
    calls = Calls(identity, node, notices, settings, run_owner(settings))
    door = Door(service, identity, node, notices, settings)
    _live(service, node, notices, door)
    _answer(service, identity, calls)
    notices.wake = service.loop("notices", notices.notice, every=NOTICE_SECONDS)
    service.loop("reports", notices.report, every=settings.report_seconds)
    service.loop("greeting", notices.greet, every=GREET_SECONDS)
    service.loop("tidy", notices.tidy, every=TIDY_SECONDS)
    return service


def _live(service: Service, node: Node, notices: Notices, door: Door) -> None:
    async def take_folder() -> None:
        node.folder.open()

    async def leave_folder() -> None:
        groups.leave(node.groups_parent)
        node.folder.close()

    service.on_start(take_folder)
    service.on_stop(leave_folder)
    service.on_stop(notices.close)
    service.on_start(door.open)
    service.on_stop(door.close)


def _answer(service: Service, identity: Identity, calls: Calls) -> None:
    for name in ("launch", "find", "stop", "seal", "logs"):
        service.answer_plain(f"call.node.{identity.node}.{name}", getattr(calls, name))


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
