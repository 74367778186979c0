"""Gives devices to attempts, one owner each: the ledger. Owns `workload.grant`."""
