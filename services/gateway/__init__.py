"""The front door: takes what users write, answers what they ask. Owns `workload.request`."""
