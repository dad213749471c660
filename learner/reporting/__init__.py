"""What a run says of itself: metrics, progress, the learning curve."""
