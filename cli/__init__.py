"""The `triplane` command."""
