"""The ledger in Postgres: whole statements, bound, for whole batches."""
