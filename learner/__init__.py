"""Learner: everything with a thread, a device or a clock."""
