"""All that both ledgers hold, in words that can be compared."""

from typing import Any

from libs.pg.pool import Connection
from services.placement.store import grants
from tests.simulation.ledger import Ledger

Rows = dict[str, Any]


def rows_of_memory(ledger: Ledger) -> Rows:
    """Return what a ledger of the simulation holds."""
    fleet = ledger.fleet
    return {
        "attempts": {
            key: (row.state, row.grants, row.refusals, row.cause, row.version, _code(row.refusal), row.refused_at)
            for key, row in ledger.attempts.rows.items()
        },
        "nodes": {
            node: (
                *(each.version, each.flag_version, each.stale, each.retired, each.blind, each.info.reported),
                *(each.drained, each.heard_at, each.suspect_since),
            )
            for node, each in ledger.fleet.nodes.items()
        },
        "devices": {
            device: (
                each.node,
                each.gpu_class,
                each.owner,
                each.owner_epoch,
                each.last_epoch,
                each.unmanaged,
                each.retired,
            )
            for device, each in ledger.fleet.devices.items()
        },
        "boots": {key: (each.incarnation, each.ended) for key, each in ledger.fleet.boots.items()},
        "grants": plain(ledger.grants),
        "lines": dict(ledger.lines) | {d: (m, fleet.devices[d].node) for d, m in fleet.holds.lines.items()},
        "holds": {
            move: (each.node, each.owner_epoch, each.stop, each.reason, each.held, each.dropped)
            for move, each in fleet.holds.rows.items()
        },
        "seals": dict(ledger.seals),
        "run over": {grant: True for grant in ledger.run_over if grant in ledger.grants},
        "stops": {(lease.device, lease.grant, lease.epoch): True for lease in ledger.stops},
        "comebacks": {job: (row.grant, row.seconds, row.until) for job, row in ledger.comebacks.rows.items()},
    }


async def rows_of_postgres(connection: Connection) -> Rows:
    """Return what the ledger in Postgres holds."""
    fetch = connection.fetch
    known = [row["id"] for row in await fetch("SELECT id FROM grants")]
    return {
        "attempts": {(row["job"], row["attempt"]): tuple(row)[2:] for row in await fetch(_ATTEMPTS)},
        "nodes": {row["node"]: tuple(row)[1:] for row in await fetch(_NODES)},
        "devices": {row["device"]: tuple(row)[1:] for row in await fetch(_DEVICES)},
        "boots": {
            (row["node"], row["boot"]): (row["incarnation"], row["ended_at"] is not None)
            for row in await fetch("SELECT * FROM boots")
        },
        "grants": plain(await grants.load(connection, known)),
        "lines": {
            row["device"]: (row["grant_id"] or row["hold"], row["node"])
            for row in await fetch("SELECT * FROM lines WHERE live")
        },
        "holds": {row["hold"]: tuple(row)[1:] for row in await fetch(_HOLDS)},
        "seals": {
            (row["grant_id"], row["node"]): (row["next_seal_at"], row["seal_asks"])
            for row in await fetch("SELECT * FROM parts WHERE next_seal_at IS NOT NULL")
        },
        "run over": {row["id"]: True for row in await fetch("SELECT id FROM grants WHERE run_over")},
        "stops": {
            (row["device"], row["lease_grant"], row["lease_epoch"]): True
            for row in await fetch("SELECT * FROM stops WHERE lifted_at IS NULL")
        },
        "comebacks": {
            row["job"]: (row["grant_id"], row["seconds"], row["until"])
            for row in await fetch("SELECT * FROM comebacks")
        },
    }


def plain(value: Any) -> Any:
    """Return a value without the ordinals of devices, which Postgres counts with gaps, and as plain as it goes."""
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(exclude={"ordinal"}))
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key != "ordinal"}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def _code(reason: Any) -> str | None:
    return reason.code.value if reason else None


_ATTEMPTS = """
SELECT job, attempt, state, grants, refusals, cause, version, refusal ->> 'code', refused_at FROM attempts
"""
_NODES = """
SELECT node, version, flag_version, stale, retired, blind, reported, drained, heard_at, suspect_since FROM nodes
"""
_HOLDS = """
SELECT hold, node, owner_epoch, stop, reason, held_at IS NOT NULL, dropped_at IS NOT NULL FROM holds
"""
_DEVICES = "SELECT device, node, gpu_class, owner, owner_epoch, last_epoch, unmanaged, retired FROM devices"
