"""The Agent: everything that the learner needs to know of an algorithm, as pure functions."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import jax
import numpy as np

from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.specs import EnvSpec
from seedrl.types import Array, Sequence, StoredStep, TimeStep, Tree


class ActOutput(NamedTuple):
    """Result of `Agent.act`.

    Attributes:
      action: what to execute, by `spec.action`: `[B] int32`, or `[B, *shape] float32` of which -1
        and 1 are the environment's bounds; what lies beyond is executed as the nearest of these.
      carry: the next one.
      extras: what to store beside it.
    """

    action: Array
    carry: Tree
    extras: Tree


class AgentState(NamedTuple):
    """What an agent learns and learns with, the same on every device.

    Attributes:
      params: what the network computes with. Evaluation, policies and checkpoints know it by name.
      target, optimizer: `()` for an agent without; checkpoints know them by name.
      extras: whatever else an agent keeps from one update to the next.
      updates: `[] int32`, the updates applied so far: the version of `params`. The learn step
        counts them; an agent only reads it.
    """

    params: Tree
    target: Tree
    optimizer: Tree
    updates: Array
    extras: Tree = ()


class UpdateOutput(NamedTuple):
    """Second result of `Agent.update`.

    Attributes:
      metrics: scalars by name. Over devices, passes and minibatches those whose names end in `_max`
        are maxima, and all others means.
      guarded: scalars that must be finite for the update to be applied, on every device: the loss
        and the norm of the gradient, say.
      priorities: `[B] float32`, new ones; `()` leaves those in the replay as they are. Where
        sequences are cut, column i B + b is piece i of sequence b: the largest of them counts.
    """

    metrics: Mapping[str, Array]
    guarded: Tree
    priorities: Array | tuple[()] = ()


class Passes(NamedTuple):
    """How often, and in how many parts, an update goes through its batch.

    Attributes:
      epochs: how often.
      minibatches: into how many parts of equal size it is dealt, at random, again for each epoch.
      pieces: how many each sequence of the batch is cut into before, by `Agent.before_batch`.
    """

    epochs: int = 1
    minibatches: int = 1
    pieces: int = 1


class Update(Protocol):
    """The type of `Agent.update`."""

    def __call__(
        self,
        state: AgentState,
        sequence: Sequence,
        weights: Array,
        key: Array,
        mean: Callable[[Tree], Tree],
    ) -> tuple[AgentState, UpdateOutput]:
        """See Agent."""
        ...


def no_initial_priorities(steps: StoredStep) -> Array:
    """Those of an agent that is not for prioritized replay. Raises ConfigError."""
    del steps
    raise ConfigError(
        "replay: this agent gives no initial priorities, without which prioritized replay cannot "
        "store its experience; choose another replay"
    )


def whole_carry(carry: Tree) -> Tree:
    """What is stored of the carry of an agent whose sequences begin with it."""
    return carry


def no_carry(carry: Tree) -> tuple[()]:
    """What is stored of the carry of an agent whose updates do not look at it."""
    del carry
    return ()


def all_params(params: Tree) -> Tree:
    """The behaviour of an agent that acts with all of its parameters."""
    return params


def as_it_is(state: AgentState, sequence: Sequence, weights: Array) -> tuple[Sequence, Array]:
    """The `before_batch` of an agent that goes through a batch as it was sampled."""
    del state
    return sequence, weights


def nothing_kept(
    state: AgentState, sequence: Sequence, mean: Callable[[Tree], Tree]
) -> tuple[AgentState, Tree]:
    """The `after_batch` of an agent that keeps nothing of what it has seen."""
    del sequence, mean
    return state, ()


class Agent(NamedTuple):
    """An algorithm as a bundle of pure, jittable functions. Absent things are `()`.

    Attributes:
      window: the sequences that `update` wants.
      init: `key -> params`.
      initial_carry: `batch_size -> carry` with leaves `[B, ...]`, the carry at an episode's start.
      act: `(behaviour, carry, timestep, exploration, key) -> ActOutput`; leaves `[B, ...]`,
        `exploration [B] float32`. Resets the carry itself where `timestep.step_type` is FIRST.
      exploration: `num_training_slots -> [N] float32`, the exploration of each training slot.
      evaluation_exploration: the exploration of every evaluation slot.
      init_state: `params -> AgentState`. No two of its leaves may share memory.
      update: `(state, sequence, weights, key, mean) -> (state, UpdateOutput)`; `sequence` is
        `[T, B]` with `T = window.length`, `weights [B] float32`. `mean` averages a tree over all
        devices: whatever changes the state must have gone through it, so that the state stays the
        same on every device. `seedrl.agents.gradient_update` gives the usual one.
      passes: how an update goes through its batch: `update` is called once for each minibatch.
      before_batch: `(state, sequence, weights) -> (sequence, weights)`: called once for each batch,
        with all of it, before its passes, and gives what these go through, `[T', B']` and `[B']`,
        with B' = B times `passes.pieces`: what is the same in all of them is computed here. By
        default it is the batch itself.
      after_batch: `(state, sequence, mean) -> (state, guarded)`: called once for each batch, with
        all of it as it was sampled, after its passes: what is kept of what was seen, such as
        running moments. `mean` and `guarded` are as for `update`, `()` for nothing to guard. By
        default it keeps nothing.
      initial_priorities: `steps [T, B] -> [B] float32`: the priorities of new sequences, from what
        was stored at acting time. `steps.timestep.observation` is `()` here. Only asked for by
        prioritized replay.
      stored_carry: `carry -> tree`: what replay keeps of the carry before a page, and a sequence
        begins with: the leaves that are selected, or `()`. Without any, sequences may start inside
        pages, see `ReplayConfig.page_steps`.
      behaviour: `params -> behaviour`: those that `act` needs, which alone cross to acting. It
        selects leaves, and computes nothing.
    """

    window: WindowSpec
    init: Callable[[Array], Tree]
    initial_carry: Callable[[int], Tree]
    act: Callable[[Tree, Tree, TimeStep, Array, Array], ActOutput]
    exploration: Callable[[int], np.ndarray]
    evaluation_exploration: float
    init_state: Callable[[Tree], AgentState]
    update: Update
    passes: Passes = Passes()
    before_batch: Callable[[AgentState, Sequence, Array], tuple[Sequence, Array]] = as_it_is
    after_batch: Callable[
        [AgentState, Sequence, Callable[[Tree], Tree]], tuple[AgentState, Tree]
    ] = nothing_kept
    initial_priorities: Callable[[StoredStep], Array] = no_initial_priorities
    stored_carry: Callable[[Tree], Tree] = whole_carry
    behaviour: Callable[[Tree], Tree] = all_params


def replace_behaviour(
    agent_behaviour: Callable[[Tree], Tree], params: Tree, behaviour: Tree
) -> Tree:
    """`params` with the leaves that `agent_behaviour` selects taken from `behaviour`."""
    leaves, structure = jax.tree.flatten(params)
    selected = agent_behaviour(jax.tree.unflatten(structure, range(len(leaves))))
    places, new = jax.tree.leaves(selected), jax.tree.leaves(behaviour)
    for place, leaf in zip(places, new, strict=True):
        leaves[place] = leaf
    return jax.tree.unflatten(structure, leaves)


class AgentConfig(Protocol):
    """What a configuration's `agent` must offer: a frozen dataclass that builds an Agent."""

    @property
    def window(self) -> WindowSpec:
        """The window, known before the environment is."""
        ...

    def build(self, spec: EnvSpec) -> Agent:
        """The agent for environments of this spec."""
        ...
