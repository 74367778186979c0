"""What the agent decides: pure, from what was looked at."""
