"""Ape-X DQN: feed-forward Q-learning from n-step transitions of prioritized replay."""
