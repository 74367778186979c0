"""Placement in numbers."""

from collections import Counter

from libs.pg.pool import Connection
from libs.telemetry.metrics import Metrics
from services.placement.store import drift, numbers


class Numbers:
    """Placement in numbers: devices and attempts by class, and what became of gangs at the gate and the wall."""

    def __init__(self, metrics: Metrics, cycle: Counter[str], renewal: Counter[str]) -> None:
        by = ("gpu_class",)
        self._free = metrics.table("triplane_placement_free_devices", "Devices offered and free.", by)
        self._live = metrics.table("triplane_placement_live_devices", "Devices that a live grant holds.", by)
        self._pending = metrics.table("triplane_placement_pending_attempts", "Attempts that wait for devices.", by)
        self._drift = metrics.table("triplane_drift", "Differences between records that last.", ("kind",))
        self._strangers = metrics.table("triplane_placement_stranger_runs", "Runs that the ledger has no part for.", ())
        count = metrics.counted
        count("triplane_placement_granted_gangs", "Gangs granted.", lambda: cycle["granted"])
        count("triplane_leases_gate_refused_gangs", "Gangs a rival's lease kept out.", lambda: cycle["gate_lost"])
        count("triplane_leases_wall_lost_gangs", "Gangs that lost the race at the wall.", lambda: cycle["wall_lost"])
        count("triplane_leases_gate_absent", "Batches decided by the wall alone.", lambda: cycle["without_gate"])
        count("triplane_leases_ghosts", "Leases of grants that were over, given back.", lambda: cycle["ghosts"])
        count("triplane_leases_rewritten", "Missing leases written again.", lambda: renewal["missing"])

    async def measure(self, connection: Connection) -> None:
        """Count."""
        free, live = await numbers.devices(connection)
        self._free.fill(free)
        self._live.fill(live)
        self._pending.fill(await numbers.pending(connection))
        self._drift.fill(await drift.counts(connection))
        self._strangers.fill({(): await numbers.strangers(connection)})
