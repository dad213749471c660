"""Environments that this project ships."""
