"""Arithmetic over devices, slots and nodes, in integers. Pure."""
