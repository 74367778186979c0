"""Knows clusters, nodes and devices, and how fresh that knowledge is. Owns `fleet.cluster` and `fleet.node`."""
