"""How PPO acts: discrete actions from logits, those of a box from a Gaussian."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from seedrl.networks.contract import build_actor_critic, build_gaussian_critic
from seedrl.networks.network import GaussianAndValue, Network, PolicyAndValue
from seedrl.rl import categorical, gaussian
from seedrl.specs import DiscreteSpec, EnvSpec
from seedrl.types import Array


class Policy(NamedTuple):
    """What is asked of actions; `output` is what the network says of rows, leaves `[..., ...]`.

    Attributes:
      drawn: `(output, exploration, key) -> action`; of one row, leaves `[B, ...]`.
      log_probability: `(output, action) -> [...] float32`.
      entropy: `output -> [...] float32`.
    """

    drawn: Callable[[Any, Array, Array], Array]
    log_probability: Callable[[Any, Array], Array]
    entropy: Callable[[Any], Array]


def policy_and_network(config: Any, spec: EnvSpec) -> tuple[Policy, Network]:
    """For actions of `spec`. Raises ConfigError for a network that does not fit them."""
    if isinstance(spec.action, DiscreteSpec):
        return CATEGORICAL, build_actor_critic(config, spec, spec.action.num_actions)
    shape = spec.action.shape
    return gaussian_of(shape), build_gaussian_critic(config, spec, math.prod(shape))


def _categorical_drawn(output: PolicyAndValue, exploration: Array, key: Array) -> Array:
    return categorical.drawn(output.logits, exploration, key)


def _categorical_log_probability(output: PolicyAndValue, action: Array) -> Array:
    return categorical.log_probability(output.logits, action)


def _categorical_entropy(output: PolicyAndValue) -> Array:
    return categorical.entropy(output.logits)


CATEGORICAL = Policy(_categorical_drawn, _categorical_log_probability, _categorical_entropy)


def gaussian_of(shape: tuple[int, ...]) -> Policy:
    """Of actions of this shape, which are stored as they were drawn, beyond [-1, 1] too."""
    return Policy(
        functools.partial(_gaussian_drawn, shape),
        functools.partial(_gaussian_log_probability, len(shape)),
        _gaussian_entropy,
    )


def _gaussian_drawn(
    shape: tuple[int, ...], output: GaussianAndValue, exploration: Array, key: Array
) -> Array:
    action = gaussian.drawn(output.mean, output.log_std, exploration, key)
    return action.reshape(-1, *shape)


def _gaussian_log_probability(rank: int, output: GaussianAndValue, action: Array) -> Array:
    flat = action.reshape(*action.shape[: action.ndim - rank], -1)
    return gaussian.log_probability(output.mean, output.log_std, flat)


def _gaussian_entropy(output: GaussianAndValue) -> Array:
    return gaussian.entropy(output.log_std)
