"""SAC: soft actor-critic, for actions of a box."""
