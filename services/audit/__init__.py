"""Keeps every fact, in order, so that tampering shows. Hears everything, says nothing."""
