"""The demonstration: a small fleet, three tenants, real processes, and a check of everything that was promised."""
