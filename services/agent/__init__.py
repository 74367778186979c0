"""One on every node: starts, seals and reports what runs there. Owns `runtime.observation`."""
