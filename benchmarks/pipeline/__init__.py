"""Jobs a second through all services, as processes of their own, on a pretended cluster."""
