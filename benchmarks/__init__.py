"""Named benchmarks, each a ratio against an anchor measured in the same run."""
