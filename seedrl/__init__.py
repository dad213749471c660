"""Distributed reinforcement learning with central inference, in JAX."""
