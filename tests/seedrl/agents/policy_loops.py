"""IMPALA's and PPO's losses written out again, time step by time step in float64."""

from typing import NamedTuple

import numpy as np

from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.types import Sequence, StepType


class Looped(NamedTuple):
    """A loss, and its gradient by the logits `[T, B, A]`."""

    loss: float
    slopes: np.ndarray


def impala(
    config: ImpalaConfig,
    log_policy: np.ndarray,
    values: np.ndarray,
    sequence: Sequence,
    weights: np.ndarray,
) -> Looped:
    """With log π `[T, B, A]`, -inf for forbidden actions, and V `[T, B]` of all rows."""
    reward, discount, rows = learned_rows(config, sequence)
    extras = sequence.steps.extras
    corrected = np.zeros_like(values)  # v - V
    loss, slopes = 0.0, np.zeros_like(log_policy)
    for t, b in reversed(rows):
        action = sequence.steps.action[t, b]
        log_pi = log_policy[t, b, action]
        ratio = np.exp(log_pi - float(extras[t, b]))
        ahead = config.gamma * float(discount[t + 1, b])
        delta = reward[t + 1, b] + ahead * values[t + 1, b] - values[t, b]
        carried = config.vtrace_lambda * ahead * corrected[t + 1, b]
        corrected[t, b] = min(config.rho_bar, ratio) * delta + min(1, ratio) * carried
        advantage = min(1, ratio) * (delta + carried)
        entropy, slope = entropy_and_slope(log_policy[t, b])
        row = -log_pi * advantage + 0.5 * 0.5 * corrected[t, b] ** 2 - config.entropy_cost * entropy
        loss += float(weights[b]) * row
        towards = one_hot_minus_policy(log_policy[t, b], action)
        slopes[t, b] = weights[b] * (-advantage * towards - config.entropy_cost * slope)
    size = config.unroll * len(weights)
    return Looped(loss / size, slopes / size)


def ppo(
    config: PpoConfig,
    log_policy: np.ndarray,
    values: np.ndarray,
    sequence: Sequence,
    weights: np.ndarray,
) -> Looped:
    """As above, of one pass over the whole batch."""
    reward, discount, rows = learned_rows(config, sequence)
    step_type, extras = sequence.steps.timestep.step_type, sequence.steps.extras
    old = extras.value.astype(np.float64)
    advantages = np.zeros_like(values)
    for t, b in reversed(rows):
        ahead = config.gamma * float(discount[t + 1, b])
        delta = reward[t + 1, b] + ahead * old[t + 1, b] - old[t, b]
        is_cut = step_type[t + 1, b] == StepType.LAST
        later = 0.0 if is_cut else advantages[t + 1, b]
        advantages[t, b] = delta + ahead * config.gae_lambda * later
    counted = np.array([advantages[row] for row in rows])
    loss, slopes = 0.0, np.zeros_like(log_policy)
    for t, b in rows:
        advantage = (advantages[t, b] - counted.mean()) / counted.std()
        action = sequence.steps.action[t, b]
        ratio = np.exp(log_policy[t, b, action] - float(extras.log_probability[t, b]))
        gain, clipped = ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage
        square = (values[t, b] - (advantages[t, b] + old[t, b])) ** 2
        entropy, slope = entropy_and_slope(log_policy[t, b])
        row = -min(gain, clipped) + 0.5 * square - config.entropy_cost * entropy
        loss += float(weights[b]) * row
        towards = (gain if gain <= clipped else 0.0) * one_hot_minus_policy(
            log_policy[t, b], action
        )
        slopes[t, b] = weights[b] * (-towards - config.entropy_cost * slope)
    return Looped(loss / len(rows), slopes / len(rows))


class LearnedRows(NamedTuple):
    """Rewards as they are learned from and discounts, `[T, B]`, and the rows that are trained."""

    reward: np.ndarray
    discount: np.ndarray
    rows: list[tuple[int, int]]


def learned_rows(config: ImpalaConfig | PpoConfig, sequence: Sequence) -> LearnedRows:
    """Of a sequence; LAST is not trained."""
    step_type, reward, discount, _ = sequence.steps.timestep
    reward = config.reward_scale * reward.astype(np.float64)
    if config.reward_clip:
        reward = np.clip(reward, -config.reward_clip, config.reward_clip)
    places = np.ndindex(config.unroll, step_type.shape[1])
    return LearnedRows(reward, discount, [p for p in places if step_type[p] != StepType.LAST])


def entropy_and_slope(log_policy: np.ndarray) -> tuple[float, np.ndarray]:
    """Of one time step: -Σ π log π over the legal actions, and its gradient by the logits."""
    legal = np.isfinite(log_policy)
    logs = np.where(legal, log_policy, 0.0)
    policy = np.where(legal, np.exp(logs), 0.0)
    entropy = -float(np.sum(policy * logs))
    return entropy, -policy * (logs + entropy)


def one_hot_minus_policy(log_policy: np.ndarray, action: int) -> np.ndarray:
    """The gradient of log π(a) by the logits."""
    return (np.arange(len(log_policy)) == action) - np.exp(log_policy)
