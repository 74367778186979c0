import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schemas.ids import DeviceId, device_id
from schemas.runtime import ObservedDevice
from services.agent.core.proofs import Look
from services.agent.store import holders
from services.agent.store.devices import DevicesUnknownError
from services.agent.store.locks import DeviceLocks
from services.agent.store.nvml import NvmlDevices
from tests.support.builders_agent import NODE
from tests.support.eventually import eventually

SOURCE = Path(__file__).parents[2] / "support" / "nvml" / "fake_nvml.c"
GPUS = ("GPU-aaaa", "GPU-bbbb")
A, B = (device_id(NODE, uuid) for uuid in GPUS)
Driver = Callable[..., None]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fake of NVIDIA's library, as a file the loader takes for the real one."""
    target = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run(["cc", *flags, "-o", str(target), str(SOURCE)], check=True)
    return str(target)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Say what the driver sees: ``driver(A={"pids": [1]}, B={"error": 15})``."""
    monkeypatch.setenv("FAKE_NVML_STATE", str(tmp_path / "state"))
    for minor in range(2):
        (tmp_path / f"nvidia{minor}").touch()

    def say(**changes: dict[str, object]) -> None:
        rows = []
        for minor, (name, uuid) in enumerate(zip("AB", GPUS, strict=True)):
            said: dict[str, object] = {"error": 0, "hang": 0, "pids": []} | changes.get(name, {})
            pids = ",".join(map(str, said["pids"])) or "0"  # type: ignore[call-overload]
            rows.append(f"{uuid} {minor} H100 81920 {said['error']} {said['hang']} {pids}")
        (tmp_path / "next").write_text("\n".join(rows) + "\n")
        (tmp_path / "next").rename(tmp_path / "state")

    say()
    return say


@pytest.fixture
def gpus(tmp_path: Path, library: str, driver: Driver) -> NvmlDevices:
    driver()
    return NvmlDevices(NODE, library=library, seconds=0.5, device_files=tmp_path)


@asynccontextmanager
async def a_stranger(*command: str, **options: object) -> AsyncIterator[int]:
    process = await asyncio.create_subprocess_exec(*(command or ("sleep", "60")), **options)  # type: ignore[arg-type]
    yield process.pid
    process.kill()
    await process.wait()


def test_devices_are_known_by_uuid_and_shown_to_cuda_by_it(gpus: NvmlDevices) -> None:
    assert gpus.all() == tuple(
        ObservedDevice(device=device, index=index, uuid=uuid, model="H100", memory_mib=81_920)
        for index, (device, uuid) in enumerate(zip((A, B), GPUS, strict=True))
    )
    assert [gpus.visible(device) for device in gpus.all()] == list(GPUS)
    assert gpus.look([A, B]) == Look()


async def test_a_process_in_the_drivers_list_is_busy(gpus: NvmlDevices, driver: Driver) -> None:
    driver(B={"pids": [4321]})
    assert gpus.look([A]) == Look()
    assert gpus.look([A, B]) == Look(busy=(f"process 4321 uses {B}",))
    assert gpus.users([A, B]) == {A: frozenset(), B: frozenset({4321})}


async def test_a_holder_of_the_device_file_is_busy_though_the_driver_lists_nobody(
    gpus: NvmlDevices, tmp_path: Path
) -> None:
    with (tmp_path / "nvidia1").open() as file:
        async with a_stranger(stdin=file) as pid:
            assert gpus.look([A, B]) == Look(busy=(f"process {pid} uses {B}",))


def test_a_lost_device_is_not_here_and_the_others_are(gpus: NvmlDevices, driver: Driver) -> None:
    driver(A={"error": 15})
    assert [device.device for device in gpus.all()] == [B]
    assert gpus.look([B]) == Look()
    assert gpus.look([A]) == Look(unknown=(f"devices: OSError: {A} is not on this node now",))


def test_a_driver_that_hangs_makes_everything_unknown_until_it_answers(gpus: NvmlDevices, driver: Driver) -> None:
    driver(A={"hang": 1200})
    began = time.monotonic()
    (first,) = gpus.look([A]).unknown
    (second,) = gpus.look([B]).unknown
    assert "did not answer in 0.5 s" in first
    assert "still has not answered" in second
    assert time.monotonic() - began < 1.0
    with pytest.raises(DevicesUnknownError):
        gpus.all()


def test_a_missing_device_file_is_unknown(gpus: NvmlDevices, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").unlink()
    (unknown,) = gpus.look([A]).unknown
    assert "nvidia0" in unknown


def test_a_machine_without_the_library_says_so(driver: Driver) -> None:
    driver()
    missing = NvmlDevices(NODE, library="/nowhere/libnvidia-ml.so.1", seconds=5)
    with pytest.raises(DevicesUnknownError, match="nowhere"):
        missing.all()


async def test_a_holder_by_another_path_is_found_by_the_files_identity(tmp_path: Path) -> None:
    device, other = tmp_path / "device", tmp_path / "other"
    device.touch()
    os.link(device, other)
    with other.open() as file:
        async with a_stranger(stdin=file) as pid:
            assert holders.scan([device]) == holders.Scan({device: frozenset({pid})}, holders.scan([]).blind)


MAPPER = """
import ctypes, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap(None, ctypes.c_size_t(4096), 1, 2, fd, ctypes.c_long(0))
os.close(fd)
print("ready", flush=True)
signal.pause()
"""
THREAD = """
import ctypes, sys, threading
def work():
    assert ctypes.CDLL(None).unshare(0x400) == 0
    kept = open(sys.argv[1])
    print("ready", flush=True)
    threading.Event().wait()
threading.Thread(target=work).start()
"""


@asynccontextmanager
async def a_program(source: str, *arguments: str) -> AsyncIterator[int]:
    """A Python program that has said that it is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    assert await process.stdout.readline() == b"ready\n"
    yield process.pid
    process.kill()
    await process.communicate()


async def test_a_mapping_holds_a_file_that_is_closed(tmp_path: Path) -> None:
    device = tmp_path / "device"
    device.write_bytes(b"x" * 4096)
    async with a_program(MAPPER, str(device)) as pid:
        assert holders.scan([device]).holders == {device: frozenset({pid})}
        assert holders.scan([device], maps=False).holders == {device: frozenset()}


async def test_a_file_that_only_a_thread_has_open_is_found(tmp_path: Path) -> None:
    device = tmp_path / "device"
    device.touch()
    async with a_program(THREAD, str(device)) as pid:
        assert holders.scan([device]).holders == {device: frozenset({pid})}


async def test_a_lock_is_looked_at_without_being_kept(tmp_path: Path) -> None:
    locks, device = DeviceLocks(tmp_path), DeviceId("dev_a")
    assert (locks.taken([device]), locks.open_elsewhere([device])) == (Look(), Look())
    async with a_stranger("flock", str(tmp_path / device), "sleep", "60") as pid:
        await eventually(lambda: locks.taken([device]).busy)
        assert locks.taken([device]) == Look(busy=(f"the lock of {device} is held",))
        assert locks.open_elsewhere([device]).busy
        assert pid in locks.users([device])[device]
