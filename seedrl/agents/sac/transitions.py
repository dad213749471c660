"""The transitions that SAC learns from, out of stored sequences."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from seedrl.types import Array, StepType, StoredStep, Tree


class Transitions(NamedTuple):
    """The N = U * B trained rows of sequences, with what followed each.

    Attributes:
      observation, next_observation: trees of `[N, ...]`.
      memory, next_memory: what the memory of the critics gives on both rows, trees of `[N, ...]`.
      next_target_memory: what the memory of the target critics gives on the later one.
      action: `[N, D] float32`.
      reward: `[N] float32`, of that action.
      discount: `[N] float32`, 0 where the episode terminated with it.
      is_trained: `[N] bool`; False on LAST rows, whose action was ignored.
    """

    observation: Tree
    memory: Tree
    action: Array
    reward: Array
    discount: Array
    next_observation: Tree
    next_memory: Tree
    next_target_memory: Tree
    is_trained: Array


def transitions(steps: StoredStep, memory: Tree, target_memory: Tree) -> Transitions:
    """The transitions of rows `[U + 1, B, ...]`, time first, and of both memories on them."""
    timestep = steps.timestep
    chex.assert_rank([timestep.step_type, timestep.reward, timestep.discount], 2)

    def flat(leaf: Array) -> Array:
        return leaf.reshape(-1, *leaf.shape[2:])

    def before(tree: Tree) -> Tree:
        return jax.tree.map(lambda leaf: flat(leaf[:-1]), tree)

    def after(tree: Tree) -> Tree:
        return jax.tree.map(lambda leaf: flat(leaf[1:]), tree)

    action = before(steps.action)
    return Transitions(
        observation=before(timestep.observation),
        memory=before(memory),
        action=action.reshape(action.shape[0], -1),
        reward=after(timestep.reward),
        discount=after(timestep.discount),
        next_observation=after(timestep.observation),
        next_memory=after(memory),
        next_target_memory=after(target_memory),
        is_trained=before(timestep.step_type) != StepType.LAST,
    )


def initial_priorities(burn_in: int, steps: StoredStep) -> Array:
    """`[B] float32`, of sequences `[T, B]`: none, or 0 where nothing can be learned.

    No critic acts, so the replay takes the mean of its own priorities for those of none (-1).
    """
    is_trained = steps.timestep.step_type[burn_in:-1] != StepType.LAST
    return jnp.where(jnp.any(is_trained, axis=0), -1.0, 0.0)
