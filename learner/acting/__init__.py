"""Hop 5: batches to actions and full pages."""
