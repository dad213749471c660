"""Observations and rewards in running units, for any agent that learns from each row once."""
