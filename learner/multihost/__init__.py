"""Several learner processes as one run: who they are, what they agree on, and who is lost."""
