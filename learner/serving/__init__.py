"""Hops 3 and 4: bytes to due batches, actions to bytes. Numpy and grpc, never jax."""
