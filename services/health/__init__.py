"""Opens incidents and drains nodes. Owns `fleet.incident` and `fleet.drain`."""
