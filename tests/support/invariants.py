"""I1 to I10, as the product itself checks them."""

from deploy.embedded.invariants import LAWS, Law, Stint, alone, breaches, overlaps

__all__ = ["LAWS", "Law", "Stint", "alone", "breaches", "overlaps"]
