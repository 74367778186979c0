"""What an agent is told by its environment (``TRIPLANE_AGENT_…``)."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1_048_576


class Settings(BaseSettings):
    """One node of a cluster, or (``document``) a whole pretended cluster that this agent stands in for.

    A service manager must not end the shims with the agent: with systemd, ``KillMode=process``.
    """

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_AGENT_", frozen=True)

    cluster: str = Field(default="", description="the cluster's name")
    node: str = Field(default="", description="the node's name inside its cluster")
    document: Path | None = None  # a Cluster document of backend pretend, YAML; cluster and node are not needed then
    speed: float = Field(default=1.0, gt=0)  # pretended clusters only: how much faster than time their runs are

    devices: int | None = Field(default=None, ge=0, le=1_024)  # declared, without hardware; None: what NVML lists
    model: str = "Virtual GPU"  # of declared devices
    device_memory_mib: int = 0  # of declared devices
    master_addr: str | None = None  # MASTER_ADDR of every gang, where nodes' names cannot be resolved
    cpu_milli: int = 0  # 0: what the machine has
    memory_mib: int = 0  # 0: what the machine has
    nvml_library: str | None = None  # None: libnvidia-ml.so.1 by the linker's path
    nvml_seconds: float = 5.0  # a call of NVML can hang in the driver: after this long the answer is "unknown"

    runtime_dir: Path = Path("/run/triplane")  # must end with the boot, and be passable for the runs' user
    scratch_dir: Path | None = None  # private working folders of runs; None: inside the runtime folder
    run_as: str = "nobody"  # whom runs belong to when the agent is root
    allow_root: bool = False  # lets runs be root when the agent is root and run_as says so

    report_seconds: float = 10.0  # three beats inside the 30 s after which a node is stale
    lock_wait_seconds: float = 10.0  # an old launch lets go as soon as its claim is refused
    clear_wait_seconds: float = 3.0  # a driver lists a dead process for a moment longer
    claim_seconds: float = 5.0  # one question to the ledger; it is asked again until the start deadline
    log_bytes: int = 32 * MIB  # of one replica's output, the newest
    retain_seconds: float = 86_400.0  # how long the folder of an ended run can be read
    retain_runs: int = Field(default=1_000, ge=1)  # and of how many at most, the newest

    boot_id_file: Path = Path("/proc/sys/kernel/random/boot_id")
    machine_id_file: Path = Path("/etc/machine-id")
