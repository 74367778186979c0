"""How fast leases are taken, raised, given back and rebuilt, beside plain SETs of the same client."""
