"""The whole stack on one machine, with no container."""
