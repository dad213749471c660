"""SAC's losses written out again, row by row in float64, with a linear network."""

import functools
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from seedrl.agents.sac import SacConfig, SacParams
from seedrl.types import Sequence, StepType


def policy_of(actor: Any, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """μ and ln σ."""
    mean, log_std = np.split(seen @ np.asarray(actor, np.float64), 2)
    return mean, log_std


def q_values_of(critics: Any, seen: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Those of both critics."""
    return np.asarray(critics.twins, np.float64) @ np.concatenate([seen, action])


def drawn(actor: Any, seen: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, float]:
    """An action and its log-probability by the change of variables."""
    mean, log_std = policy_of(actor, seen)
    u = mean + np.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    return np.tanh(u), float(np.sum(normal + 2 * np.log(np.cosh(u))))


def memories(first: Any, then: Any, burn_in: int, sequence: Sequence) -> np.ndarray:
    """The linear memory of all rows `[T, B, H]`: by `first` up to the burn-in's end, by `then`."""
    steps, step = sequence.steps, sequence.steps.timestep
    num_rows, num_sequences = step.step_type.shape
    if not jax.tree.leaves(then):
        return np.zeros((num_rows, num_sequences, 0))
    found = np.zeros((num_rows, num_sequences, len(np.asarray(then["B"]))))
    for b in range(num_sequences):
        memory = np.asarray(sequence.carry.network[b], np.float64)
        action = np.asarray(sequence.carry.previous_action[b], np.float64).ravel()
        for t in range(num_rows):
            params = first if t < burn_in else then
            reward = float(step.reward[t, b])
            if step.step_type[t, b] == StepType.FIRST:
                memory, action, reward = 0 * memory, 0 * action, 0.0
            seen = np.concatenate([step.observation[t, b], action, [reward]])
            memory = seen @ np.asarray(params["I"], np.float64) + memory @ np.asarray(
                params["B"], np.float64
            )
            found[t, b], action = memory, steps.action[t, b].ravel()
    return found


@functools.partial(jax.jit, static_argnums=1)
def _noises(key: jax.Array, number: int) -> list[jax.Array]:
    return [jax.random.normal(k, (number, 2)) for k in jax.random.split(key)]


class Losses(NamedTuple):
    """What the loops give."""

    critic: float
    actor: float
    temperature: float
    priorities: np.ndarray


def looped(
    config: SacConfig,
    params: SacParams,
    target: Any,
    sequence: Sequence,
    weights: np.ndarray,
    key: jax.Array,
    constant: SacParams,
) -> Losses:
    """The three losses; `constant` is what no gradient goes through."""
    steps, step = sequence.steps, sequence.steps.timestep
    num_rows, num_sequences = config.unroll, len(weights)
    noises = np.asarray(_noises(key, num_rows * num_sequences), np.float64)
    noises = noises.reshape(2, num_rows, num_sequences, 2)
    observation = np.asarray(step.observation, np.float64)
    of_constant, of_params, of_target = (
        np.concatenate([observation, memories(first, then, config.burn_in, sequence)], axis=-1)
        for first, then in (
            (constant.critics.memory, constant.critics.memory),
            (constant.critics.memory, params.critics.memory),
            (target.memory, target.memory),
        )
    )
    alpha = math.exp(float(constant.log_temperature))
    critic, actor, temperature, sizes = 0.0, 0.0, 0.0, [[] for _ in range(num_sequences)]
    for t in range(config.burn_in, config.burn_in + num_rows):
        for b in range(num_sequences):
            if step.step_type[t, b] == StepType.LAST:
                continue
            noise = [n[t - config.burn_in, b] for n in noises]
            action, log_probability = drawn(constant.actor, of_constant[t + 1, b], noise[0])
            value = min(q_values_of(target, of_target[t + 1, b], action)) - alpha * log_probability
            y = float(step.reward[t + 1, b]) + config.gamma * float(step.discount[t + 1, b]) * value
            errors = y - q_values_of(params.critics, of_params[t, b], steps.action[t, b].ravel())
            critic += float(weights[b]) * 0.5 * float(np.sum(errors**2))
            sizes[b].append(float(np.mean(np.abs(errors))))
            action, log_probability = drawn(params.actor, of_constant[t, b], noise[1])
            value = min(q_values_of(constant.critics, of_constant[t, b], action))
            actor += float(weights[b]) * (alpha * log_probability - value)
            _, log_probability = drawn(constant.actor, of_constant[t, b], noise[1])
            excess = -log_probability - -2.0
            temperature += float(weights[b]) * float(params.log_temperature) * excess
    rows = num_rows * num_sequences
    priorities = [0.9 * max(found) + 0.1 * float(np.mean(found)) for found in sizes]
    return Losses(critic / rows, actor / rows, temperature / rows, np.array(priorities))


def slope_by_differences(
    config: SacConfig,
    part: str,
    gradient: SacParams,
    loss_arguments: tuple[SacParams, Any, Sequence, np.ndarray, jax.Array],
) -> float:
    """What all losses change by along the signs of the gradient of `part`, all else held.

    It is the sum of the gradient's absolute values if that gradient is the losses' own.
    """
    params, *others = loss_arguments
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    totals = []
    for size in (1e-5, -1e-5):
        moved = jax.tree.map(
            lambda leaf, slope, size=size: leaf + size * np.sign(slope),
            getattr(wide, part),
            getattr(gradient, part),
        )
        found = looped(config, wide._replace(**{part: moved}), *others, wide)
        totals.append(sum(found[:3]))
    return (totals[0] - totals[1]) / 2e-5
