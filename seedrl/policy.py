"""A trained policy as a function, for use in other programs."""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedrl import config_io
from seedrl.programs import extras

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    extras.require("learner")  # says what to install
    raise

from seedrl import checkpoints, export
from seedrl.agents.agent import Agent
from seedrl.agents.check import build_agent
from seedrl.errors import ConfigError
from seedrl.spec_json import saved_spec
from seedrl.specs import DiscreteSpec, EnvSpec
from seedrl.types import Array, StepType, TimeStep, Tree

__all__ = ["Policy", "PolicyCarry", "PolicyStep", "load"]


def __dir__() -> list[str]:
    # What a user of an interpreter is shown: not what this module imports.
    return __all__


class PolicyCarry(NamedTuple):
    """A policy's memory between two steps of an episode. Pass it on, and do not look inside."""

    agent: Tree  # leaves `[B, ...]`; B is 1 for a single environment
    step_type: Array  # `[B] uint8`: FIRST until the episode's first observation was seen, then MID
    key: Array


class PolicyStep(NamedTuple):
    """A policy's answer to an observation.

    Attributes:
      action: to execute: an int from 0, or `[*shape] float32` within the environment's bounds; of a
        batch `[B] int32`, or `[B, *shape] float32`.
      carry: for the next step.
      extras: what the agent says of it, e.g. Q-values `[A]`, of a batch `[B, A]`.
    """

    action: int | np.ndarray
    carry: PolicyCarry
    extras: Tree


class Policy:
    """Plays one environment, or a vector of them. Built by `load`.

        policy = load("runs/cartpole")
        carry = policy.initial_carry()                   # at the start of every episode
        action, carry = policy(observation, carry)
        observation, reward, ... = env.step(action)
        action, carry = policy(observation, carry, reward=reward)

    Of a vector of environments, whose episodes begin at different times:

        carry = policy.initial_carry(num_envs)
        actions, carry, _ = policy.act_batch(observations, carry, rewards, is_first)

    It may be called by any thread: only the carry changes, and the number of the next episode.

    Attributes:
      spec: the environment that it was trained on.
      step: after how many updates its parameters acted.
      params: what the agent's functions take.
    """

    def __init__(
        self, agent: Agent, params: Tree, spec: EnvSpec, *, step: int, seed: int, epsilon: float
    ):
        self.spec = spec
        self.step = step
        self._agent = agent
        self.params = params
        self._epsilon = epsilon
        self._acting = jax.device_put(agent.actor_params(params))
        self._key = jax.random.key(seed)
        self._episodes = itertools.count()
        self._act = jax.jit(functools.partial(_act, agent, spec))

    def initial_carry(self, num_envs: int = 1) -> PolicyCarry:
        """The carry at an episode's start. Each one draws different random actions, if any.

        `num_envs`: B, of a vector of environments.
        """
        # Two threads with the same number would draw the same actions in two episodes; `next` of a
        # count is one step of the interpreter, so they never get it.
        key = jax.random.fold_in(self._key, next(self._episodes))
        step_type = np.full((num_envs,), StepType.FIRST, np.uint8)
        return PolicyCarry(self._agent.initial_carry(num_envs), step_type, key)

    def __call__(
        self, observation: Tree, carry: PolicyCarry, *, reward: float = 0.0
    ) -> tuple[int | np.ndarray, PolicyCarry]:
        """The action on an observation, and the carry for the next one.

        Args:
          observation: tree of `[*shape]` as in `spec`.
          carry: of the step before, or `initial_carry()`.
          reward: that arrived with this observation; a recurrent network was trained to see it. It
            is ignored on an episode's first observation.

        Raises ValueError that names the array whose shape or dtype is not that of `spec` or that is
        not finite, or says that the carry is none.
        """
        result = self.act(observation, carry, reward=reward)
        return result.action, result.carry

    def act(self, observation: Tree, carry: PolicyCarry, *, reward: float = 0.0) -> PolicyStep:
        """Like a call, with the agent's extras."""
        result = self._step(observation, carry, np.asarray([reward]), None, is_batch=False)
        action, extras = jax.tree.map(lambda leaf: leaf[0], (result.action, result.extras))
        is_discrete = isinstance(self.spec.action, DiscreteSpec)
        return PolicyStep(int(action) if is_discrete else action, result.carry, extras)

    def act_batch(
        self,
        observations: Tree,
        carry: PolicyCarry,
        rewards: np.ndarray | None = None,
        is_first: np.ndarray | None = None,
    ) -> PolicyStep:
        """Acts for a vector of B environments; else like `act`.

        Args:
          observations: tree of `[B, *shape]`.
          carry: of the step before, or `initial_carry(B)`.
          rewards: `[B] float32` that arrived with them.
          is_first: `[B] bool`: True if the observation begins an episode: carry and reward are then
            ignored. All begin one with `initial_carry(B)`.
        """
        return self._step(observations, carry, rewards, is_first, is_batch=True)

    def export(self) -> bytes:
        """The policy as a file that needs only jax; see `seedrl.export`."""
        return export.serialize(self._agent, self.params, self.spec, epsilon=self._epsilon)

    def _step(
        self,
        observations: Tree,
        carry: PolicyCarry,
        rewards: np.ndarray | None,
        is_first: np.ndarray | None,
        *,
        is_batch: bool,
    ) -> PolicyStep:
        if not isinstance(carry, PolicyCarry):
            raise ValueError(
                "expected the carry of the step before or, for an episode's first observation, "
                f"initial_carry(), got {type(carry).__name__}"
            )
        size = len(carry.step_type)
        rewards = np.zeros(size) if rewards is None else np.asarray(rewards)
        is_first = np.zeros(size, bool) if is_first is None else np.asarray(is_first, bool)
        for name, array in (("reward", rewards), ("is_first", is_first)):
            if array.shape != (size,):
                raise ValueError(f"{name}: expected shape [{size}], got {list(array.shape)}")
        _require_finite("reward", rewards.astype(np.float64))
        output, key = self._act(
            self._acting,
            carry,
            self._rows(observations, (size,) if is_batch else ()),
            rewards.astype(np.float32),
            is_first,
            np.full((size,), self._epsilon, np.float32),
        )
        step_type = np.full((size,), StepType.MID, np.uint8)
        action, extras = jax.tree.map(np.asarray, (output.action, output.extras))
        # An observation far beyond those of training may overflow in the network.
        for leaf in jax.tree.leaves((action, extras)):
            if leaf.dtype.kind == "f" and np.isnan(leaf).any():
                raise ValueError(
                    "expected numbers from the network, got NaN; are the observations "
                    "those of the environment that it was trained on?"
                )
        return PolicyStep(action, PolicyCarry(output.carry, step_type, key), extras)

    def _rows(self, observation: Tree, head: tuple[int, ...]) -> Tree:
        # `[B, *shape]`, from observations whose shape is `head` and then that of `spec`.
        try:
            leaves = self.spec.flatten(observation)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            paths = ", ".join(path for path, _ in self.spec.leaves())
            raise ValueError(
                f"expected an observation with {paths}, got {type(observation).__name__}: {error}"
            ) from error
        rows = []
        for (path, spec), array in zip(self.spec.leaves(), map(np.asarray, leaves), strict=True):
            shape = head + spec.shape
            if array.shape != shape or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
                raise ValueError(
                    f"{path}: expected {spec.dtype}{list(shape)}, got {array.dtype}"
                    f"{list(array.shape)}; {'with' if head else 'without'} a batch axis"
                )
            _require_finite(path, array)
            rows.append(array.astype(spec.dtype).reshape(-1, *spec.shape))
        return self.spec.unflatten(rows)


def load(
    workdir: str | Path,
    *,
    seed: int = 0,
    step: int | None = None,
    best: bool = False,
    epsilon: float = 0.0,
    allow: Sequence[str | Path] = (),
) -> Policy:
    """The policy of a run's newest checkpoint with intact parameters. Reads nothing else of it.

    Args:
      workdir: the run's folder.
      seed: of its random actions, if there are any.
      step: which checkpoint to take instead of the newest.
      best: take the one that scored highest in the evaluations of the run.
      epsilon: the agent's exploration; 0 is greedy.
      allow: folders of Python files that the run may name as its agent or network. A run's folder
        may come from anybody: by default it names only what is installed.

    Raises CheckpointError if there is no such checkpoint, or it does not fit the saved config;
    ConfigError if there is no readable config, or both `step` and `best`.
    """
    if best and step is not None:
        raise ConfigError("step and best: expected one of them, got both")
    folder = Path(workdir)
    config_io.allow(*allow)
    config = config_io.of_run(folder)
    found = checkpoints.choose(folder, step=step, is_best=best, parts=checkpoints.PARAMS)
    spec = saved_spec(found.meta["env_spec"])
    agent = build_agent(config.agent, spec)
    abstract = {"params": jax.eval_shape(agent.init, jax.random.key(0))}
    params = checkpoints.restore(found, abstract)["params"]
    updates = checkpoints.updates_of_params(found)
    return Policy(agent, params, spec, step=updates, seed=seed, epsilon=epsilon)


def _act(
    agent: Agent,
    spec: EnvSpec,
    params: Tree,
    carry: PolicyCarry,
    observation: Tree,
    reward: Array,
    is_first: Array,
    exploration: Array,
) -> tuple[Any, Array]:
    key, next_key = jax.random.split(carry.key)
    step_type = jnp.where(is_first, jnp.uint8(StepType.FIRST), carry.step_type)
    reward = jnp.where(step_type == StepType.FIRST, 0.0, reward)
    before = jax.tree.map(
        lambda new, old: jnp.where(is_first.reshape(-1, *[1] * (old.ndim - 1)), new, old),
        agent.initial_carry(len(is_first)),
        carry.agent,
    )
    timestep = TimeStep(step_type, reward, jnp.ones_like(reward), observation)
    output = agent.act(params, before, timestep, exploration, key)
    own_action = jax.vmap(functools.partial(export.own_action, spec))
    return output._replace(action=own_action(output.action)), next_key


def _require_finite(name: str, array: np.ndarray) -> None:
    # As in training, where an env server refuses such an observation.
    if array.dtype.kind != "f":
        return
    with np.errstate(over="ignore"):  # a number that float32 cannot hold is infinite to a network
        is_finite = np.isfinite(array.astype(np.float32))
    if not is_finite.all():
        raise ValueError(f"{name}: expected finite numbers, got {array[~is_finite].flat[0]}")
