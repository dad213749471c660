"""Reports of a run: metrics, events, status, progress, the learning curve."""
