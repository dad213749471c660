"""Env server: steps environments on CPUs and streams observations to a learner."""
