"""Launches granted attempts on their backends and tells how they end. Owns `workload.run`."""
