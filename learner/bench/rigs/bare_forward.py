"""The network alone: one compiled forward pass over rows that are on the device already."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from learner.acting.act_step import example_timestep
from learner.bench.rigs.workloads import Workload
from seedrl.networks.network import NetworkInput


def bare_forward(workload: Workload, rows: int) -> Callable[[], int]:
    """A function that takes one step of `rows` environments and waits for it; returns `rows`."""
    network = workload.config.agent.network.build(workload.spec)
    params = jax.jit(network.init)(jax.random.PRNGKey(0))
    carry = network.initial_carry(rows)
    timestep = example_timestep(workload.spec)
    inputs = NetworkInput(
        observation=jax.tree.map(
            lambda leaf: jnp.zeros((1, rows, *leaf.shape), leaf.dtype), timestep.observation
        ),
        previous_action=jnp.zeros((1, rows), jnp.int32),
        reward=jnp.zeros((1, rows), jnp.float32),
        is_first=jnp.zeros((1, rows), bool),
    )
    program = jax.jit(network.unroll)

    def step() -> int:
        jax.block_until_ready(program(params, carry, inputs))
        return rows

    step()
    return step
