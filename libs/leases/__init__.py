"""The door to Redis: single-owner leases of devices."""
