"""Who reaches a learner, and what admits them."""
