"""The Agent: everything that the learner needs to know of an algorithm, as pure functions."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import optax

from seedrl.agents.window import WindowSpec
from seedrl.specs import EnvSpec
from seedrl.types import Array, Sequence, StoredStep, TimeStep, Tree


class ActOutput(NamedTuple):
    """Result of `Agent.act`: the `action [B] int32` to execute, the next carry, what to store."""

    action: Array
    carry: Tree
    extras: Tree


class LossOutput(NamedTuple):
    """Second result of `Agent.loss`: new `priorities [B] float32`, and scalar metrics.

    Priorities of `()` leave those in the replay as they are. Over devices, metrics whose names end
    in `_max` are maxima, and all others means.
    """

    priorities: Array
    metrics: Mapping[str, Array]


class Agent(NamedTuple):
    """An algorithm as a bundle of pure, jittable functions. Absent things are `()`.

    Attributes:
      window: the sequences that `loss` wants.
      init: `key -> params`.
      initial_carry: `batch_size -> carry` with leaves `[B, ...]`, the carry at an episode's start.
      act: `(params, carry, timestep, exploration, key) -> ActOutput`; leaves `[B, ...]`,
        `exploration [B] float32`. Resets the carry itself where `timestep.step_type` is FIRST.
      exploration: `num_training_slots -> [N] float32`, the exploration of each training slot.
      evaluation_exploration: the exploration of every evaluation slot.
      init_target: `params -> target`; `()` for an agent without one. Must copy.
      update_target: `(params, target, updates) -> target`; `updates` counts this one, from 1.
      loss: `(params, target, sequence, weights, key) -> (loss, LossOutput)`; `sequence` is `[T, B]`
        with `T = window.length`, `weights [B] float32`. The scalar is a mean over the batch.
      initial_priorities: `steps [T, B] -> [B] float32`: the priorities of new sequences, from what
        was stored at acting time. `steps.timestep.observation` is `()` here.
      optimizer: turns gradients into updates.
    """

    window: WindowSpec
    init: Callable[[Array], Tree]
    initial_carry: Callable[[int], Tree]
    act: Callable[[Tree, Tree, TimeStep, Array, Array], ActOutput]
    exploration: Callable[[int], np.ndarray]
    evaluation_exploration: float
    init_target: Callable[[Tree], Tree]
    update_target: Callable[[Tree, Tree, Array], Tree]
    loss: Callable[[Tree, Tree, Sequence, Array, Array], tuple[Array, LossOutput]]
    initial_priorities: Callable[[StoredStep], Array]
    optimizer: optax.GradientTransformation


class AgentConfig(Protocol):
    """What a configuration's `agent` must offer: a frozen dataclass that builds an Agent."""

    @property
    def window(self) -> WindowSpec:
        """The window, known before the environment is."""
        ...

    def build(self, spec: EnvSpec) -> Agent:
        """The agent for environments of this spec."""
        ...
