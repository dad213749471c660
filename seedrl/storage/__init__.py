"""What a run keeps on disk: checkpoints, their arrays, and the sums that show damage."""
