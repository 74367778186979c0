"""Why a gang is not placed, with the numbers of this moment."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import Demand
from services.placement.core.board import Board
from services.placement.core.comeback import Comeback
from services.placement.core.view import Stock

JOBS_NAMED: Final = 3  # as many jobs for which something is held
NODES_NAMED: Final = 3  # a message names so many nodes and counts the others
MAX_GRANT_DEVICES: Final = 4_096  # a grant is one fact, and a fact has 512 KiB at most


def behind() -> Reason:
    """Return why nothing is placed while new grants are stopped: numbers of free devices would mislead."""
    text = "no new grants: the ledger went back; see 'triplane escalations'"
    return reason(Layer.PLACEMENT, Code.LEDGER_BEHIND, text)


def over_before() -> Reason:
    """Return why nothing is issued to an attempt whose end came before its admission (R9)."""
    return reason(Layer.PLACEMENT, Code.ATTEMPT_OVER, "the attempt was over before it was given devices")


def used_up() -> Reason:
    """Return why nothing is issued to an attempt that was given devices before the ledger went back (R12)."""
    text = "the attempt was given devices before the ledger went back; the next one is given others"
    return reason(Layer.PLACEMENT, Code.LEDGER_BEHIND, text)


def verdict(board: Board, full: Board, gpu_class: str, demand: Demand) -> tuple[Reason, bool]:
    """Return the reason and whether it is final. ``full`` is the fleet as if nothing were used."""
    stock = board.view.stock.get(gpu_class)
    exist = int(stock.exist.sum()) if stock else 0
    if stock is None or exist == 0:
        return reason(
            Layer.PLACEMENT,
            Code.NO_DESTINATION,
            f"no node has devices of class {gpu_class}",
            needs=demand.devices,
            exist=0,
        ), False
    if demand.devices > MAX_GRANT_DEVICES or full.find(gpu_class, demand) is None:
        return _never(full, gpu_class, demand, exist), True
    return _not_now(board, stock, gpu_class, demand), False


def held_for_others(why: Reason, holds: Sequence[tuple[Comeback, int]]) -> Reason:
    """Return why a gang is not placed that would fit but for what is held for others: for whom, how many, until when.

    ``why``: the verdict without a word on that. Jobs may be another tenant's: their names are not told, but their ids.
    """
    standing = [(hold, devices) for hold, devices in holds if devices]
    notes = [
        f"{devices} held for job {hold.job} until {hold.until.isoformat(timespec='seconds')}"
        for hold, devices in standing[:JOBS_NAMED]
    ]
    more = f" and {len(standing) - JOBS_NAMED} more jobs" if len(standing) > JOBS_NAMED else ""
    kept = sum(devices for _, devices in standing)
    text = f"{why.message}, {', '.join(notes)}{more}"
    return reason(Layer.PLACEMENT, Code.HELD_FOR_RECOVERY, text, **why.numbers, held_for_recovery=kept)


def _never(full: Board, gpu_class: str, demand: Demand, exist: int) -> Reason:
    largest = full.largest(gpu_class, demand)
    text = f"can never fit: {_too_small(demand, exist, int(full.free[gpu_class].max(initial=0)), largest)}"
    return reason(Layer.PLACEMENT, Code.CAN_NEVER_FIT, text, asked=demand.devices, exist=exist, largest_domain=largest)


def _too_small(demand: Demand, exist: int, node: int, largest: int) -> str:
    """Return the plainest of what is too small. ``node``: the devices of the largest node."""
    if demand.devices > MAX_GRANT_DEVICES:
        return f"{demand.devices} asked, a grant has {MAX_GRANT_DEVICES} at most"
    if demand.devices > exist:
        return f"{demand.devices} asked, {exist} exist"
    if demand.devices_per_replica > node:
        return f"a replica needs {demand.devices_per_replica} on one node, the largest node has {node}"
    if not largest and not demand.topology_required:
        return "no node has the CPU and memory that a replica asks for"
    return f"largest {_domain(demand)} {largest}, needs {_needs(demand)}"


def _not_now(board: Board, stock: Stock, gpu_class: str, demand: Demand) -> Reason:
    free, held, releasing = (int(column.sum()) for column in (board.free[gpu_class], stock.held, stock.releasing))
    largest = board.largest(gpu_class, demand)
    tight = demand.topology_required and free >= demand.devices
    text = f"needs {_needs(demand)}, free {free}{_held(board, stock)}{_releasing(board, stock)}"
    if free >= demand.devices:
        text += f", largest {_domain(demand)} {largest}"
    return reason(
        Layer.PLACEMENT,
        Code.TOPOLOGY_PLACEMENT_FAILED if tight else Code.WAITING_FOR_CAPACITY,
        text,
        needs=demand.devices,
        free=free,
        held=held,
        releasing=releasing,
        largest_domain=largest,
    )


def _needs(demand: Demand) -> str:
    return (
        str(demand.devices)
        if demand.replicas == 1
        else f"{demand.devices} ({demand.replicas} x {demand.devices_per_replica})"
    )


def _domain(demand: Demand) -> str:
    return demand.topology_level if demand.topology_level and demand.topology_required else "domain"


def _held(board: Board, stock: Stock) -> str:
    at = np.flatnonzero(stock.held)
    if not len(at):
        return ""
    notes = [_note(board, int(node)) for node in at[:NODES_NAMED]]
    more = f" and {len(at) - NODES_NAMED} more nodes" if len(at) > NODES_NAMED else ""
    return f", {int(stock.held.sum())} more held on {', '.join(notes)}{more}"


def _note(board: Board, node: int) -> str:
    row = board.view.nodes[node]
    hold = row.held
    assert hold is not None, row
    since = f", since {hold.since.isoformat(timespec='seconds')}" if hold.since else ""
    return f"{row.name} ({hold.owner}: {hold.reason}{since})"


def _releasing(board: Board, stock: Stock) -> str:
    at = np.flatnonzero(stock.releasing)
    if not len(at):
        return ""
    names = ", ".join(board.view.nodes[int(node)].name for node in at[:NODES_NAMED])
    more = f" and {len(at) - NODES_NAMED} more nodes" if len(at) > NODES_NAMED else ""
    return f", {int(stock.releasing.sum())} awaiting confirmation from {names}{more}"
