"""Turns grants into usage and money, once. Owns `ledger.usage`."""
