"""The doors to the backends: one driver a module, one protocol for all."""
