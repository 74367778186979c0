"""Columns over nodes: how much of a gang each node could hold. NumPy, integers only."""

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]


def replicas_that_fit(free: tuple[Column, ...], asked: tuple[int, ...]) -> Column:
    """Return for each node the replicas that fit: the least of free ÷ asked over the resources asked for. O(nodes).

    A resource that is not asked for (0) does not bound; negative free counts as none.
    """
    bounds = [np.maximum(column, 0) // amount for column, amount in zip(free, asked, strict=True) if amount > 0]
    assert bounds, "a replica asks for something"
    fits: Column = np.minimum.reduce(bounds)
    return fits


def sum_by_group(values: Column, group: Column, groups: int) -> Column:
    """Return the sum of the values in each group (0 to groups - 1); values with group -1 are in none. O(nodes)."""
    member = group >= 0
    sums: Column = np.zeros(groups, dtype=np.int64)
    np.add.at(sums, group[member], values[member])
    return sums
