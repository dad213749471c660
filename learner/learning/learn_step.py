"""Learning as one program per device: sample, loss, gradient, update and priority write-back."""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from learner.learning.scalars import Scalars
from seedrl.agents.agent import Agent, LossOutput
from seedrl.replay.replay import InsertPlan, Replay, ReplayState
from seedrl.rl.importance import importance_weights, shard_probability
from seedrl.types import Array, Page, Tree

AXIS = "device"


class LearnerState(NamedTuple):
    """What learning owns, the same on every device.

    Attributes:
      params, target, optimizer: trees; `target` is `()` for an agent without one.
      updates: `[] int32`, applied updates: the version of `params`.
      key: `[2] uint32`.
    """

    params: Tree
    target: Tree
    optimizer: Tree
    updates: Array
    key: Array


class LearnPrograms(NamedTuple):
    """Per-device functions, before they are mapped over devices.

    Attributes:
      init: `key -> LearnerState`.
      insert: `(replay, pages [I, ...], plan [I]) -> replay`.
      learn: `(state, replay, is_enabled) -> (state, replay, metrics)`. An update that is not finite
        is skipped: the key moves on, and the sequences of its batch are drawn last from then on.
        With `is_enabled` False nothing changes: that compiles
        and warms up the program without learning from it.
    """

    init: Callable[[Array], LearnerState]
    insert: Callable[[ReplayState, Page, InsertPlan], ReplayState]
    learn: Callable[[LearnerState, ReplayState, Array], tuple[LearnerState, ReplayState, Scalars]]


def build_learn_programs(
    agent: Agent,
    replay: Replay,
    *,
    batch_per_device: int,
    num_devices: int,
    importance_exponent: float,
) -> LearnPrograms:
    """Builds the per-device functions; `learn` runs under a mapped axis called AXIS."""

    def learn(
        state: LearnerState, memory: ReplayState, is_enabled: Array
    ) -> tuple[LearnerState, ReplayState, Scalars]:
        # The stored key stays equal on all devices; what each device draws differs by its index.
        next_key, key = jax.random.split(state.key)
        sample_key, loss_key = jax.random.split(jax.random.fold_in(key, jax.lax.axis_index(AXIS)))
        sample = replay.sample(memory, sample_key, batch_per_device)
        weights = importance_weights(
            shard_probability(sample.probability, num_devices), importance_exponent, AXIS
        )
        (loss, output), gradients = jax.value_and_grad(agent.loss, has_aux=True)(
            state.params, state.target, sample.sequence, weights, loss_key
        )
        # The mean comes after the gradient: inside the loss pmap would leave it per device.
        gradients = jax.lax.pmean(gradients, AXIS)
        loss = jax.lax.pmean(loss, AXIS)
        gradient_norm = optax.tree.norm(gradients)
        is_finite = jnp.isfinite(loss) & jnp.isfinite(gradient_norm)
        is_applied = is_finite & is_enabled

        new_state = _apply(agent, state, gradients)
        new_state = jax.tree.map(lambda new, old: jnp.where(is_applied, new, old), new_state, state)
        # With the key of a skipped update the same batch would be drawn again, for ever.
        new_state = new_state._replace(key=jnp.where(is_enabled, next_key, state.key))
        written = _written_priorities(output, weights, is_applied, is_enabled)
        new_memory = replay.update_priorities(memory, sample.index, written)
        metrics = Scalars.of(
            {
                **_over_devices(output.metrics),
                **_lag(agent, state.updates, sample.sequence.steps.version),
                "loss": loss,
                "gradient_norm": gradient_norm,
                "skipped_updates": (~is_finite & is_enabled).astype(jnp.float32),
            }
        )
        return new_state, new_memory, metrics

    return LearnPrograms(functools.partial(_init, agent), replay.insert, learn)


def _init(agent: Agent, key: Array) -> LearnerState:
    params_key, key = jax.random.split(key)
    params = agent.init(params_key)
    return LearnerState(
        params=params,
        target=agent.init_target(params),
        optimizer=agent.optimizer.init(params),
        updates=jnp.zeros((), jnp.int32),
        key=key,
    )


def _written_priorities(
    output: LossOutput, weights: Array, is_applied: Array, is_enabled: Array
) -> Array:
    """What the sequences of a batch get, `[B] float32`; NaN keeps what they have."""
    kept = jnp.full_like(weights, jnp.nan)
    (priorities,) = jax.tree.leaves(output.priorities) or (kept,)
    # Whatever made the update not finite would be drawn again, for as long as it is stored.
    return jnp.where(is_applied, priorities, jnp.where(is_enabled, 0.0, kept))


def _over_devices(metrics: Mapping[str, Array]) -> dict[str, Array]:
    """An agent's own numbers: maxima for names that end in `_max`, else means."""
    return {
        name: (jax.lax.pmax if name.endswith("_max") else jax.lax.pmean)(value, AXIS)
        for name, value in metrics.items()
    }


def _apply(agent: Agent, state: LearnerState, gradients: Tree) -> LearnerState:
    deltas, optimizer = agent.optimizer.update(gradients, state.optimizer, state.params)
    params = optax.apply_updates(state.params, deltas)
    updates = state.updates + 1
    target = agent.update_target(params, state.target, updates)
    return LearnerState(params, target, optimizer, updates, state.key)


def _lag(agent: Agent, updates: Array, versions: Array) -> dict[str, Array]:
    """Mean and largest number of updates between acting and consumption, over the trained rows."""
    start, stop = agent.window.burn_in, agent.window.burn_in + agent.window.unroll
    lag = (updates - versions[start:stop]).astype(jnp.float32)
    return {
        "policy_lag_updates": jax.lax.pmean(lag.mean(), AXIS),
        "policy_lag_updates_max": jax.lax.pmax(lag.max(), AXIS),
    }
