"""The door to Redis: single-owner leases of devices."""

from libs.leases.client import Leases, Raised
from libs.leases.lease import PENDING, Lease

__all__ = ["PENDING", "Lease", "Leases", "Raised"]
