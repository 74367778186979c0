"""Inventory knows what there is: declared, reported, silent, marked. Pure: views in, facts out."""

from services.inventory.core.view import Beat, Cluster, GpuClass, Hold, Node, Policy, Standing, View

__all__ = ["Beat", "Cluster", "GpuClass", "Hold", "Node", "Policy", "Standing", "View"]
