"""The contract between env servers and the learner, as bytes."""
