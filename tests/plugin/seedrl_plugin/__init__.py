"""What a user's own package looks like: an agent and an environment, and nothing of seedrl's."""
