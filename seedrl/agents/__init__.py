"""Agents: bundles of pure functions that say how to act and what to minimise."""
