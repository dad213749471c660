"""Checks an environment against the contract, as its author would want to before training."""
