"""The real cores in one process, on a virtual clock, in a world that fails: every storm is told by one seed."""
