"""Benchmarks: what this system reaches on this machine, beside the machine's own limits."""
