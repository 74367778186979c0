"""Storms that once found a fault of the product. When the world changes, a seed tells another story."""

from collections.abc import Mapping
from typing import Final

REGRESSIONS: Final[Mapping[str, str]] = {
    "11": "a claim bound other devices, whose epochs stayed: their leases stood above the ledger (I10)",
    "17": "a node had only a later start that had heard nobody, and dispatch waited for the first for ever",
    "1182": "each look at a run that was lost put off the sweep, and its result was never said again",
    "20049": "after a restore a node stayed marked off for the cluster that owned it, and refused its jobs for ever",
    "30198": "a hello from before a restore was told a number that came again, and ended the node's present boot",
}
"""What each seed found, as numbers of `make storm SEED=`."""
