"""A trained policy as a function, for use in other programs."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedrl import config_json, config_modules
from seedrl.programs import extras

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    extras.require("learner")  # says what to install
    raise

from seedrl.agents.agent import Agent
from seedrl.agents.contract import build_agent
from seedrl.errors import ConfigError
from seedrl.exported_policy import serialize
from seedrl.spec_json import saved_spec
from seedrl.specs import ActionSpec, ArraySpec, DiscreteSpec, EnvSpec
from seedrl.storage import checkpoints
from seedrl.storage.chosen import choose, updates_of_params
from seedrl.types import Array, StepType, TimeStep, Tree


class PolicyCarry(NamedTuple):
    """What a policy remembers between two steps of an episode. Pass it on, and do not look inside.

    Attributes:
      agent: the agent's carry, leaves `[1, ...]`.
      step_type: `[1] uint8`: FIRST until the episode's first observation was seen, then MID.
      key: PRNG key of the next step.
    """

    agent: Tree
    step_type: Array
    key: Array


class PolicyStep(NamedTuple):
    """What a policy does on an observation.

    Attributes:
      action: to execute: an int from 0, or `[*shape] float32` within the environment's bounds.
      carry: for the next step.
      extras: what the agent says of it, e.g. Q-values `[A]`.
    """

    action: int | np.ndarray
    carry: PolicyCarry
    extras: Tree


class Policy:
    """Plays one environment; single observations, no batch axis. Built by `load`.

        policy = load("runs/cartpole")
        carry = policy.initial_carry()                   # at the start of every episode
        action, carry = policy(observation, carry)
        observation, reward, ... = env.step(action)
        action, carry = policy(observation, carry, reward=reward)

    It may be called by any thread: what changes is in the carry, except the count of episodes.

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
        self._acting = jax.device_put(agent.behaviour(params))
        self._exploration = jnp.full((1,), epsilon, jnp.float32)
        self._key = jax.random.key(seed)
        self._num_episodes = 0
        self._act = jax.jit(functools.partial(_act, agent))
        self._to_action = _to_action(spec.action)

    def initial_carry(self) -> PolicyCarry:
        """The carry at an episode's start. Each one draws different random actions, if any."""
        key = jax.random.fold_in(self._key, self._num_episodes)
        self._num_episodes += 1
        step_type = np.full((1,), StepType.FIRST, np.uint8)
        return PolicyCarry(self._agent.initial_carry(1), step_type, key)

    def __call__(
        self, observation: Tree, carry: PolicyCarry, *, reward: float = 0.0
    ) -> tuple[int | np.ndarray, PolicyCarry]:
        """The action on an observation, and the carry for the next one.

        Args:
          observation: tree of `[*shape]` as in `spec`.
          carry: of the step before, or `initial_carry()`.
          reward: that arrived with this observation; a recurrent network was trained to see it. It
            is ignored on an episode's first observation.

        Raises ValueError that names the array whose shape or dtype is not that of `spec`, or says
        that the carry is none.
        """
        result = self.act(observation, carry, reward=reward)
        return result.action, result.carry

    def act(self, observation: Tree, carry: PolicyCarry, *, reward: float = 0.0) -> PolicyStep:
        """Like a call, with the agent's extras."""
        if not isinstance(carry, PolicyCarry):
            raise ValueError(
                "expected the carry of the step before or, for an episode's first observation, "
                f"initial_carry(), got {type(carry).__name__}"
            )
        rows = self.spec.unflatten(
            [
                _row(path, spec, value)
                for (path, spec), value in zip(
                    self.spec.leaves(), self._leaves(observation), strict=True
                )
            ]
        )
        rewards = np.full((1,), reward, np.float32)
        output, key = self._act(self._acting, carry, rows, rewards, self._exploration)
        step_type = np.full((1,), StepType.MID, np.uint8)
        extras = jax.tree.map(lambda leaf: np.asarray(leaf)[0], output.extras)
        return PolicyStep(
            self._to_action(np.asarray(output.action)[0]),
            PolicyCarry(output.carry, step_type, key),
            extras,
        )

    def export(self) -> bytes:
        """The policy as a file that needs jax alone; see `seedrl.exported_policy`."""
        return serialize(self._agent, self.params, self.spec, epsilon=self._epsilon)

    def _leaves(self, observation: Tree) -> Sequence[Any]:
        try:
            return self.spec.flatten(observation)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            paths = ", ".join(path for path, _ in self.spec.leaves())
            raise ValueError(
                f"expected an observation with {paths}, got {type(observation).__name__}: {error}"
            ) from error


def load(
    workdir: str | Path,
    *,
    seed: int = 0,
    step: int | None = None,
    best: bool = False,
    epsilon: float = 0.0,
    allow: Sequence[str | Path] = (),
) -> Policy:
    """The policy of a run's newest intact checkpoint.

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
    config_modules.allow(*allow)
    config = config_json.of_run(folder)
    found = choose(folder, step=step, is_best=best)
    spec = saved_spec(found.meta["env_spec"])
    agent = build_agent(config.agent, spec)
    abstract = {"params": jax.eval_shape(agent.init, jax.random.key(0))}
    params = checkpoints.restore(found, abstract)["params"]
    return Policy(agent, params, spec, step=updates_of_params(found), seed=seed, epsilon=epsilon)


def _act(
    agent: Agent,
    params: Tree,
    carry: PolicyCarry,
    observation: Tree,
    reward: Array,
    exploration: Array,
) -> tuple[Any, Array]:
    key, next_key = jax.random.split(carry.key)
    reward = jnp.where(carry.step_type == StepType.FIRST, 0.0, reward)
    timestep = TimeStep(carry.step_type, reward, jnp.ones_like(reward), observation)
    return agent.act(params, carry.agent, timestep, exploration, key), next_key


def _to_action(action: ActionSpec) -> Callable[[np.ndarray], int | np.ndarray]:
    """What the environment takes, of what the agent emits."""
    if isinstance(action, DiscreteSpec):
        return int
    rescale = action.rescaler()
    return lambda emitted: rescale(np.clip(emitted, -1.0, 1.0)).astype(np.float32)


def _row(path: str, spec: ArraySpec, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.shape != spec.shape or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        raise ValueError(
            f"{path}: expected {spec.dtype}{list(spec.shape)}, "
            f"got {array.dtype}{list(array.shape)}; pass one observation, without a batch axis"
        )
    return array.astype(spec.dtype)[None]
