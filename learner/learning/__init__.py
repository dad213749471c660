"""Hops 6 to 8: pages to replay to update to parameters."""
