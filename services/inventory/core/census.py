"""The four numbers of a fleet: total, allocatable, reserved, idle."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from schemas.ids import ClusterId, NodeId

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Stock:
    """The devices of one class on one node. ``offered``: the node is reported, not stale and bears no mark."""

    cluster: ClusterId
    node: NodeId
    gpu_class: str | None
    devices: int
    reserved: int
    offered: bool


@dataclass(frozen=True, slots=True)
class Numbers:
    """Devices. Those of a node that is silent, marked or unreported are in no other number: unknown is not free."""

    total: int = 0
    allocatable: int = 0
    reserved: int = 0
    idle: int = 0

    def __add__(self, other: "Numbers") -> "Numbers":
        return Numbers(
            self.total + other.total,
            self.allocatable + other.allocatable,
            self.reserved + other.reserved,
            self.idle + other.idle,
        )


def count(stocks: Iterable[Stock], by: Callable[[Stock], K]) -> dict[K, Numbers]:
    """Return the numbers for each key: by cluster, by class, by node, or by any of them together."""
    found: dict[K, Numbers] = {}
    for stock in stocks:
        found[by(stock)] = found.get(by(stock), Numbers()) + _numbers(stock)
    return found


def _numbers(stock: Stock) -> Numbers:
    """A device is allocatable when it has a class; idle ones are counted node by node, so that none is negative."""
    allocatable = stock.devices if stock.offered and stock.gpu_class is not None else 0
    return Numbers(stock.devices, allocatable, stock.reserved, max(0, allocatable - stock.reserved))
