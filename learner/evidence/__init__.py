"""What several runs show together: read from their folders, never from a running learner."""
