"""What the agent answers, to whom it opens, and what it says."""
