"""The Network: a (recurrent) function of a stream of observations, as pure functions."""

import math
from collections.abc import Callable
from typing import NamedTuple

from seedrl.specs import ActionSpec, DiscreteSpec, MultiDiscreteSpec
from seedrl.types import Array, Tree


class NetworkInput(NamedTuple):
    """Input of a network, time-major."""

    observation: Tree  # `[T, B, *shape]`
    # `[T, B] int32`, of MultiDiscrete `[T, B, *shape] int32`, or of a box `[T, B, *shape] float32`:
    # the executed action of the step before.
    previous_action: Array
    reward: Array  # `[T, B] float32`; like the action ignored on FIRST
    is_first: Array  # `[T, B] bool`: the recurrent state is reset before this time step


class PolicyAndValue(NamedTuple):
    """Output of an actor-critic network for each time step."""

    # `[T, B, A] float32`, unnormalised log-probabilities of the actions; of MultiDiscrete those of
    # its elements one after another.
    logits: Array
    value: Array  # `[T, B] float32`, V


class GaussianAndValue(NamedTuple):
    """Output of an actor-critic network where actions are a box of D numbers."""

    mean: Array  # `[T, B, D] float32`, of the policy; -1 and 1 are the environment's bounds
    log_std: Array  # `[T, B, D] float32`
    value: Array  # `[T, B] float32`, V


def num_outputs_of(action: ActionSpec) -> int:
    """How many numbers a policy over such actions has: logits of each, or the means of a box."""
    if isinstance(action, DiscreteSpec):
        return action.num_actions
    if isinstance(action, MultiDiscreteSpec):
        return sum(action.counts)
    return math.prod(action.array.shape)


class Network(NamedTuple):
    """A network as a bundle of pure functions."""

    init: Callable[[Array], Tree]  # `key -> params`
    initial_carry: Callable[[int], Tree]  # `batch_size -> carry`, leaves `[B, ...]`; `()` if none
    # `(params, carry, inputs) -> (output, carry)` with leaves `[T, B, ...]`. One step is an unroll
    # of length 1. The returned carry belongs after the last one. The output is Q-values `[T, B, A]
    # float32`, a `PolicyAndValue`, or what else an agent asks for.
    unroll: Callable[[Tree, Tree, NetworkInput], tuple[Tree, Tree]]
