"""Env servers, as a run reports them."""
