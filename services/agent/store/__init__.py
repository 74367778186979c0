"""What the agent reads and writes on its node: folders, locks, processes, control groups, devices."""
