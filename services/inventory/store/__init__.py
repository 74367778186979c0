"""Inventory's memory in Postgres."""
