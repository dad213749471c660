"""Many runs on this machine: what a grid plans, and the processes that do it."""
