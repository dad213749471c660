"""The Agent: everything that the learner needs of an algorithm, as pure functions."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import jax
import numpy as np

from seedrl.agents.window import WindowSpec
from seedrl.specs import EnvSpec
from seedrl.types import Array, Sequence, StoredStep, TimeStep, Tree


class ActOutput(NamedTuple):
    """Result of `Agent.act`."""

    # To be executed, by `spec.action`: `[B] int32`, `[B, *shape] int32` of MultiDiscrete, or `[B,
    # *shape] float32` of which -1 and 1 are the environment's bounds, if it has both; a number
    # beyond is executed as the nearest of these.
    action: Array
    carry: Tree  # the next recurrent state
    extras: Tree  # stored with the time step, for the update: Q-values or log-probabilities, say


class AgentState(NamedTuple):
    """Learner state of an agent, replicated on every device. Checkpoints use these names."""

    params: Tree  # of the network; evaluation and policies use this name too
    target: Tree  # `()` for an agent without
    optimizer: Tree  # `()` for an agent without
    # `[] int32`, the updates applied so far: the version of `params`. The learn step counts them,
    # an agent only reads it.
    updates: Array
    extras: Tree = ()  # anything else that an agent keeps from one update to the next
    # `[] float32`, the training environment steps of the run when the update began, for schedules.
    # The learn step gives it to `Agent.update` alone and saves none of it; elsewhere it is `()`.
    env_steps: Array | tuple[()] = ()


class UpdateOutput(NamedTuple):
    """Second result of `Agent.update`."""

    # Scalars by name. Over devices, epochs and minibatches those whose names end in `_max` are
    # maxima, and all others means. NaN is left out: this minibatch has nothing to measure it by.
    metrics: Mapping[str, Array]
    # Scalars that must be finite for the update to be applied, on every device: the loss and the
    # norm of the gradient, say.
    guarded: Tree
    # `[B] float32`, new ones; `()` leaves those in the replay as they are. If sequences are cut,
    # column i B + b is chunk i of sequence b: the largest of them counts.
    priorities: Array | tuple[()] = ()


class Update(Protocol):
    """The type of `Agent.update`: a function, or a `GradientUpdate`."""

    def __call__(
        self,
        state: AgentState,
        sequence: Sequence,
        weights: Array,
        key: Array,
        mean: Callable[[Tree], Tree],
    ) -> tuple[AgentState, UpdateOutput]: ...


# Functions of agents that lack something.


def whole_carry(carry: Tree) -> Tree:
    """The `stored_carry` of an agent whose sequences start from its recurrent state."""
    return carry


def no_carry(carry: Tree) -> tuple[()]:
    """The `stored_carry` of an agent whose updates do not use the recurrent state of acting."""
    del carry
    return ()


class Agent(NamedTuple):
    """An algorithm as a bundle of pure, jittable functions. Absent things are `()`."""

    window: WindowSpec  # the sequences that `update` takes
    init: Callable[[Array], Tree]  # `key -> params`
    # `batch_size -> carry` with leaves `[B, ...]`: the recurrent state at an episode's start.
    initial_carry: Callable[[int], Tree]
    # `(actor_params, carry, timestep, exploration, key) -> ActOutput`; leaves `[B, ...]`,
    # `exploration [B] float32`. Resets the carry itself where `timestep.step_type` is FIRST.
    act: Callable[[Tree, Tree, TimeStep, Array, Array], ActOutput]
    exploration: Callable[[int], np.ndarray]  # `num_training_slots -> [N] float32`, of each slot
    evaluation_exploration: float  # of every evaluation slot
    init_state: Callable[[Tree], AgentState]  # no two leaves of the result may share memory
    # `(state, sequence, weights, key, mean) -> (state, UpdateOutput)`; `sequence` is `[T, B]` with
    # `T = window.length`, `weights [B] float32`. `mean` averages a tree over all devices: whatever
    # changes the state must have gone through it, so that the state stays the same on every device.
    # `seedrl.agents.gradient_update` gives the usual one.
    update: Update
    epochs: int = 1  # how often an update goes through its batch
    # Parts of equal size of a batch: the learner shuffles and splits it again for each epoch, and
    # calls `update` once for each part.
    minibatches: int = 1
    chunks: int = 1  # pieces that `preprocess_batch` cuts each sequence into
    # `(state, sequence, weights) -> (sequence, weights)`: called once for each batch, with all of
    # it, before the first epoch; returns the batch that the epochs go through, `[T', B']` and
    # `[B']` with B' = B times `chunks`. For parts that all epochs share, such as advantages.
    preprocess_batch: Callable[[AgentState, Sequence, Array], tuple[Sequence, Array]] = (
        lambda state, sequence, weights: (sequence, weights)
    )
    # `(state, sequence, weights, mean) -> (state, guarded)`: called once for each batch, with all
    # of it as it was sampled, after the last epoch, for running statistics of the experience. A
    # sequence of weight 0 is one that the batch has already, or none at all, and must not count.
    # `mean` and `guarded` are as for `update`, `()` for nothing to guard.
    update_statistics: Callable[
        [AgentState, Sequence, Array, Callable[[Tree], Tree]], tuple[AgentState, Tree]
    ] = lambda state, sequence, weights, mean: (state, ())
    # `steps [T, B] -> [B] float32`: the priorities of new sequences, from the data stored at acting
    # time; `steps.timestep.observation` is `()`. Without it the agent has no prioritized replay.
    initial_priorities: Callable[[StoredStep], Array] | None = None
    # `carry -> tree`: the part of the carry that replay keeps for the start of each sequence:
    # selected leaves, or `()`. With `()`, sequences may start inside pages, see
    # `ReplayConfig.page_steps`.
    stored_carry: Callable[[Tree], Tree] = whole_carry
    # `params -> actor_params`: the leaves that `act` needs; only these are copied to acting. It
    # selects leaves and computes nothing.
    actor_params: Callable[[Tree], Tree] = lambda params: params
    # Training environment steps over which training slots explore less and less, linearly from 1 to
    # `exploration`; 0 for `exploration` from the start.
    exploration_decay_steps: int = 0


def replace_actor_params(select: Callable[[Tree], Tree], params: Tree, actor_params: Tree) -> Tree:
    """`params` with the leaves that `select`, an `Agent.actor_params`, selects replaced."""
    leaves, structure = jax.tree.flatten(params)
    # Run on the positions of the leaves, `select` shows which ones it takes.
    positions = jax.tree.leaves(select(jax.tree.unflatten(structure, range(len(leaves)))))
    for position, leaf in zip(positions, jax.tree.leaves(actor_params), strict=True):
        leaves[position] = leaf
    return jax.tree.unflatten(structure, leaves)


class AgentConfig(Protocol):
    """The interface of a configuration's `agent`: a frozen dataclass that builds an Agent."""

    # Known before the environment is.
    @property
    def window(self) -> WindowSpec: ...
    # The agent for environments of this spec.
    def build(self, spec: EnvSpec) -> Agent: ...
