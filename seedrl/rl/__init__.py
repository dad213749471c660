"""Equations of reinforcement learning, as pure functions."""
