"""A trained policy as one file that needs jax alone: docs/exported_policy.md shows how it is read.

The file is one `jax.export` function

    (observation, reward [] float32, carry) -> (action, carry)

of one environment without a batch axis, with the parameters inside. `carry` is a list of arrays; of
zeros it begins an episode.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from seedrl.agents.agent import Agent
from seedrl.specs import BoxSpec, EnvSpec
from seedrl.types import Array, StepType, TimeStep, Tree

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def serialize(agent: Agent, params: Tree, spec: EnvSpec, *, epsilon: float = 0.0) -> bytes:
    """The file's content.

    Args:
      agent: what acts.
      params: all of its parameters.
      spec: of the environments.
      epsilon: the agent's exploration; 0 is greedy.
    """
    actor_params = jax.tree.map(jnp.asarray, agent.actor_params(params))
    initial, structure = jax.tree.flatten(agent.initial_carry(1))

    def act(observation: Tree, reward: Array, carry: Sequence[Array]) -> tuple[Array, list[Array]]:
        # A carry of zeros has this step type: FIRST is 0.
        step_type, key, *leaves = carry
        is_first = step_type == StepType.FIRST
        leaves = [jnp.where(is_first, new, old) for new, old in zip(initial, leaves, strict=True)]
        timestep = TimeStep(
            step_type[None],
            jnp.where(is_first, 0.0, reward)[None],
            jnp.ones(1),
            jax.tree.map(lambda leaf: leaf[None], observation),
        )
        key, next_key = jax.random.split(jax.random.wrap_key_data(key))
        exploration = jnp.full(1, epsilon, jnp.float32)
        before = jax.tree.unflatten(structure, leaves)
        output = agent.act(actor_params, before, timestep, exploration, key)
        after = [jnp.uint8(StepType.MID), jax.random.key_data(next_key)]
        return own_action(spec, output.action[0]), [*after, *jax.tree.leaves(output.carry)]

    carry = [np.uint8(0), np.zeros(2, np.uint32), *initial]
    observation = spec.unflatten(
        [
            jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
            for _, leaf in spec.leaves()
        ]
    )
    example = (observation, np.float32(0), carry)
    exported: Any = export.export(jax.jit(act), platforms=PLATFORMS)(*example)
    return bytes(exported.serialize())


def own_action(spec: EnvSpec, action: Array) -> Array:
    """What the environment takes, of what the agent emits; see `BoxSpec.rescaler`."""
    if not isinstance(spec.action, BoxSpec):
        return action
    low, high = float32_bounds(spec.action)
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    return jnp.clip(middle + half * jnp.clip(action, -1.0, 1.0), low, high)


def float32_bounds(box: BoxSpec) -> tuple[np.ndarray, np.ndarray]:
    """`[*shape] float32` bounds that lie within those of the box: rounding may lead out of it."""
    low, high = (np.array(bound, np.float64).reshape(box.shape) for bound in (box.low, box.high))
    inner_low, inner_high = low.astype(np.float32), high.astype(np.float32)
    up, down = np.float32(np.inf), np.float32(-np.inf)
    inner_low = np.where(inner_low < low, np.nextafter(inner_low, up), inner_low)
    inner_high = np.where(inner_high > high, np.nextafter(inner_high, down), inner_high)
    return inner_low, inner_high
