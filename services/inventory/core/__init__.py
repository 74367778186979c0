"""Inventory knows what there is: declared, reported, silent, marked. Pure: views in, facts out."""

from services.inventory.core.census import Numbers, Stock, count
from services.inventory.core.decide import Said, decide, elapse, said
from services.inventory.core.evolve import evolve
from services.inventory.core.view import Beat, Cluster, GpuClass, Hold, Move, Node, Policy, Standing, View

__all__ = [
    "Beat",
    "Cluster",
    "GpuClass",
    "Hold",
    "Move",
    "Node",
    "Numbers",
    "Policy",
    "Said",
    "Standing",
    "Stock",
    "View",
    "count",
    "decide",
    "elapse",
    "evolve",
    "said",
]
