"""Double Q-learning's n-step errors and their priorities, row by row in float64."""

from typing import Any

import numpy as np

from seedrl.types import StepType, StoredStep


def errors_of(
    config: Any,
    q_online: np.ndarray,
    q_target: np.ndarray,
    steps: StoredStep,
    mask: np.ndarray | bool = True,
) -> np.ndarray:
    """Target minus prediction of every trained row, `[U, B]`; NaN on LAST.

    From Q-values `[T, B, A]` of all rows; `mask`, of the same shape: the legal actions.
    """
    targets = targets_of(config, np.where(mask, q_online, -np.inf), q_target, steps)
    return targets - executed(config, q_online[config.window.burn_in :], steps)


def targets_of(
    config: Any, q_online: np.ndarray, q_target: np.ndarray, steps: StoredStep
) -> np.ndarray:
    """h(Σ γᵏ r + γⁿ h⁻¹(Q_target(s, argmax Q_online))) of every trained row; NaN on LAST."""
    step, window = steps.timestep, config.window
    targets = np.full((window.unroll, step.reward.shape[1]), np.nan)
    for row, b in np.ndindex(targets.shape):
        t = window.burn_in + row
        if step.step_type[t, b] == StepType.LAST:
            continue
        total, weight = 0.0, 1.0
        for _ in range(config.n_steps):
            t += 1
            reward = config.reward_scale * float(step.reward[t, b])
            if limit := getattr(config, "reward_clip", 0):
                reward = min(max(reward, -limit), limit)
            total += weight * reward
            weight *= config.gamma * float(step.discount[t, b])
            if step.step_type[t, b] == StepType.LAST:
                break
        # The action at the end of a return is the best **there**.
        greedy = int(np.argmax(q_online[t, b]))
        total += weight * h_inverse(config, float(q_target[t, b, greedy]))
        targets[row, b] = h(config, total)
    return targets


def executed(config: Any, q_values: np.ndarray, steps: StoredStep) -> np.ndarray:
    """Those of the actions of the trained rows, with which `q_values [..., U, B, A]` begins."""
    window = config.window
    actions = steps.action[window.burn_in : window.burn_in + window.unroll]
    return q_values[..., *np.indices(actions.shape), actions]


def priorities_of(config: Any, errors: np.ndarray) -> np.ndarray:
    """η max |δ| + (1 - η) mean |δ| of the trained rows, `[B]`; of one row |δ|."""
    eta = getattr(config, "priority_eta", 1.0)
    found = np.zeros(errors.shape[1])
    for b in range(len(found)):
        sizes = [abs(error) for error in errors[:, b] if not np.isnan(error)]
        if sizes:
            found[b] = eta * max(sizes) + (1 - eta) * sum(sizes) / len(sizes)
    return found


def h(config: Any, x: float) -> float:
    """R2D2's scaling of values, where it is asked for."""
    if not getattr(config, "value_scaling", False):
        return x
    return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + config.value_scaling_epsilon * x


def h_inverse(config: Any, y: float) -> float:
    """Its inverse."""
    if not getattr(config, "value_scaling", False):
        return y
    epsilon = config.value_scaling_epsilon
    root = np.sqrt(1 + 4 * epsilon * (abs(y) + 1 + epsilon))
    return np.sign(y) * (((root - 1) / (2 * epsilon)) ** 2 - 1)
