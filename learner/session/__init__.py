"""The only package that wires: a run from start to end."""
