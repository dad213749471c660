"""What a running learner tells monitoring: that it is well, and numbers."""
