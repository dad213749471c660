"""The Network: a (recurrent) function of a stream of observations, as pure functions."""

from collections.abc import Callable
from typing import NamedTuple

from seedrl.types import Array, Tree


class NetworkInput(NamedTuple):
    """Input of a network, time-major.

    Attributes:
      observation: tree of `[T, B, *shape]`.
      previous_action: `[T, B] int32`, the executed action of the step before; ignored on FIRST. Of
        a box `[T, B, *shape] float32`.
      reward: `[T, B] float32`; ignored on FIRST.
      is_first: `[T, B] bool`: the recurrent state is reset before this time step.
    """

    observation: Tree
    previous_action: Array
    reward: Array
    is_first: Array


class PolicyAndValue(NamedTuple):
    """Output of an actor-critic network for each time step.

    Attributes:
      logits: `[T, B, A] float32`, unnormalised log-probabilities of the actions.
      value: `[T, B] float32`, V.
    """

    logits: Array
    value: Array


class GaussianAndValue(NamedTuple):
    """Output of an actor-critic network where actions are a box of D numbers.

    Attributes:
      mean: `[T, B, D] float32`, of the policy; -1 and 1 are the environment's bounds.
      log_std: `[T, B, D] float32`.
      value: `[T, B] float32`, V.
    """

    mean: Array
    log_std: Array
    value: Array


class Network(NamedTuple):
    """A network as a bundle of pure functions.

    Attributes:
      init: `key -> params`.
      initial_carry: `batch_size -> carry`, leaves `[B, ...]`; `()` for a feed-forward network.
      unroll: `(params, carry, inputs) -> (output, carry)` with leaves `[T, B, ...]`. One step is an
        unroll of length 1. The returned carry belongs after the last one. The output is Q-values
        `[T, B, A] float32`, a `PolicyAndValue`, or what else an agent asks for.
    """

    init: Callable[[Array], Tree]
    initial_carry: Callable[[int], Tree]
    unroll: Callable[[Tree, Tree, NetworkInput], tuple[Tree, Tree]]
