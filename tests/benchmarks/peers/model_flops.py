"""Floating-point operations that networks need for an environment step: acting, then learning.

Matrix products and convolutions, a multiplication and an addition being two; see
`tests.benchmarks.flops`.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from learner.acting.act_step import example_timestep
from learner.bench.workloads import Workload
from seedrl.networks.network import NetworkInput
from tests.benchmarks.bare_learner import BareLearner
from tests.benchmarks.flops import count_flops

# Of the Nature network, which Sample Factory calls convnet_atari.
_STRIDES = (4, 2, 1)


def of_workload(workload: Workload) -> float:
    """Ours: one row through the network, and the share of an update that is due for it."""
    network = workload.config.agent.network.build(workload.spec)
    timestep = example_timestep(workload.spec)
    inputs = NetworkInput(
        observation=jax.tree.map(lambda leaf: jnp.asarray(leaf)[None, None], timestep.observation),
        previous_action=jnp.zeros((1, 1), jnp.int32),
        reward=jnp.zeros((1, 1), jnp.float32),
        is_first=jnp.zeros((1, 1), bool),
    )
    params = jax.eval_shape(network.init, jax.random.PRNGKey(0))
    acting = count_flops(network.unroll, params, network.initial_carry(1), inputs)
    config = workload.config
    trained_steps = config.learning.batch_sequences * config.agent.window.unroll
    update = BareLearner(workload, pages_per_insert=1).flops_per_update
    return acting + update * config.replay.ratio / trained_steps


def of_actor_critic(weights: Sequence[Sequence[int]], *, image_size: int = 84) -> int:
    """A network that is trained once on every step: forward, then forward and backward.

    Args:
      weights: the shapes of its matrices `[outputs, inputs]` and kernels `[outputs, inputs, height,
        width]`, as torch has them, in the order in which they are passed.
      image_size: height and width of what the first kernel sees.

    Backward is twice as much as forward, but for the first layer, whose inputs have no gradient.
    """
    layers = []
    strides = iter(_STRIDES)
    for shape in weights:
        places = 1
        if len(shape) == 4:
            image_size = (image_size - shape[-1]) // next(strides) + 1
            places = image_size**2
        layers.append(2 * math.prod(shape) * places)
    return 4 * sum(layers) - layers[0]
