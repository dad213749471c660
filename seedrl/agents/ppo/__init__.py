"""PPO: its configuration, and its functions, which alone import jax."""
