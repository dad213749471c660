"""A trained policy as a function, for use in other programs."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from seedrl import checkpoints, config_io, stored_arrays
from seedrl.agents.agent import Agent
from seedrl.agents.check import build_agent
from seedrl.agents.normalization import NormalizedExtras
from seedrl.config import Config
from seedrl.errors import ConfigError
from seedrl.run_files import CONFIG
from seedrl.specs import ACTION_MASK, BoxSpec, DiscreteSpec, EnvSpec, has_mask
from seedrl.types import Array, StepType, TimeStep, Tree
from seedrl.wire.payload import StepLayout, check_rewards

__all__ = ["Policy", "PolicyCarry", "PolicyStep", "load"]

_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")  # on which an exported policy runs


class PolicyCarry(NamedTuple):
    """A policy's memory between two steps of an episode. Pass it on, and do not look inside."""

    agent: Tree  # leaves `[B, ...]`; B is 1 for a single environment
    step_type: Array  # `[B] uint8`: FIRST until the episode's first observation was seen, then MID
    key: Array


class PolicyStep(NamedTuple):
    """A policy's answer to an observation.

    Attributes:
      action: to execute: an int from 0, `[*shape] int32` of MultiDiscrete, or `[*shape] float32`
        within the environment's bounds; of a batch `[B] int32`, or `[B, *shape]`.
      carry: for the next step.
      extras: values that the agent returned with it, e.g. Q-values `[A]`, of a batch `[B, A]`.
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

    For a vector of environments, whose episodes start at different times:

        carry = policy.initial_carry(num_envs)
        actions, carry, _ = policy.act_batch(observations, carry, rewards, is_first)

    Threads may share a policy: each keeps the carry of its own episode.

    Attributes:
      spec: interface of the environment that it was trained on.
      step: number of updates of its parameters.
      params: the agent's parameters.
    """

    def __init__(
        self,
        agent: Agent,
        params: Tree,
        spec: EnvSpec,
        *,
        step: int,
        seed: int,
        epsilon: float,
        max_abs_reward: float = 0.0,
    ):
        """`max_abs_reward`: of the environment in training; 0 stands for no bound."""
        self.spec = spec
        self._max_abs_reward = max_abs_reward
        self.step = step
        self._agent = agent
        self.params = params
        self._epsilon = epsilon
        self._acting = jax.device_put(agent.actor_params(params))  # once, not at every step
        self._key = jax.random.key(seed)
        self._episodes = itertools.count()
        self._act = jax.jit(self._computed)

    def initial_carry(self, num_envs: int = 1) -> PolicyCarry:
        """Returns the carry for the start of an episode, or of `num_envs` episodes for `act_batch`.

        Each carry has its own random numbers.
        """
        # Two threads with the same number would draw the same actions in two episodes; `next` of a
        # count is one step of the interpreter, so they never get it.
        key = jax.random.fold_in(self._key, next(self._episodes))
        step_type = np.full((num_envs,), StepType.FIRST, np.uint8)
        return PolicyCarry(self._agent.initial_carry(num_envs), step_type, key)

    def __call__(
        self, observation: Tree, carry: PolicyCarry, *, reward: float = 0.0
    ) -> tuple[int | np.ndarray, PolicyCarry]:
        """Returns the action for an observation, and the carry for the next one.

        Args:
          observation: of one environment, without a batch axis. An action mask is part of it:
            `{**observation, "action_mask": mask}`, or `{"observation": observation, "action_mask":
            mask}` if it is not a dict.
          carry: carry that the previous step returned, or `initial_carry()`.
          reward: reward that arrived with this observation. A recurrent network uses it. It is
            ignored on an episode's first observation.

        Raises ValueError with the name of the array if its shape, dtype or numbers do not fit
        `spec`, or if the carry is not a carry.
        """
        result = self.act(observation, carry, reward=reward)
        return result.action, result.carry

    def act(self, observation: Tree, carry: PolicyCarry, *, reward: float = 0.0) -> PolicyStep:
        """Acts like a call, and returns the agent's extras too."""
        result = self._step(observation, carry, np.asarray([reward]), None, is_batch=False)
        action, extras = jax.tree.map(lambda leaf: leaf[0], (result.action, result.extras))
        is_discrete = isinstance(self.spec.action, DiscreteSpec)
        # An array also of a box whose shape is (): spaces contain arrays only.
        return PolicyStep(int(action) if is_discrete else np.asarray(action), result.carry, extras)

    def act_batch(
        self,
        observations: Tree,
        carry: PolicyCarry,
        rewards: np.ndarray | None = None,
        is_first: np.ndarray | None = None,
    ) -> PolicyStep:
        """Acts like `act` for a vector of B environments.

        Args:
          observations: tree of `[B, *shape]`.
          carry: carry that the previous step returned, or `initial_carry(B)`, which starts an
            episode in every environment.
          rewards: `[B] float32` that arrived with the observations.
          is_first: `[B] bool`, True if the observation starts an episode. Its carry and reward are
            then ignored.
        """
        return self._step(observations, carry, rewards, is_first, is_batch=True)

    def export(self) -> bytes:
        """Returns a file's content that needs only jax and flatbuffers.

        docs/exported_policy.md shows its use.

        It is one `jax.export` function for one environment, with the parameters inside:

            (observation, reward [] float32, carry) -> (action, carry)

        `carry` is a list of arrays; zeros start an episode, because StepType.FIRST is 0.
        """
        initial, structure = jax.tree.flatten(self._agent.initial_carry(1))

        def act(
            observation: Tree, reward: Array, carry: Sequence[Array]
        ) -> tuple[Array, list[Array]]:
            step_type, key, *leaves = carry
            agent_carry = jax.tree.unflatten(structure, leaves)
            before = PolicyCarry(agent_carry, step_type[None], jax.random.wrap_key_data(key))
            rows = jax.tree.map(lambda leaf: leaf[None], observation)
            result = self._computed(self._acting, before, rows, reward[None], jnp.zeros(1, bool))
            step_type, key = result.carry.step_type[0], jax.random.key_data(result.carry.key)
            action: Any = result.action
            return action[0], [step_type, key, *jax.tree.leaves(result.carry.agent)]

        leaves = [leaf for _, leaf in self.spec.leaves()]
        observation = self.spec.unflatten([np.zeros(leaf.shape, leaf.dtype) for leaf in leaves])
        carry = [np.uint8(0), np.zeros(2, np.uint32), *initial]
        exported: Any = jax.export.export(jax.jit(act), platforms=_PLATFORMS)
        return bytes(exported(observation, np.float32(0), carry).serialize())

    def _computed(
        self, params: Tree, carry: PolicyCarry, observation: Tree, reward: Array, is_first: Array
    ) -> PolicyStep:
        # Compiled: of B environments, without any check.
        key, next_key = jax.random.split(carry.key)
        is_first = is_first | (carry.step_type == StepType.FIRST)
        before = jax.tree.map(
            lambda new, old: jnp.where(is_first.reshape(-1, *[1] * (old.ndim - 1)), new, old),
            self._agent.initial_carry(len(is_first)),
            carry.agent,
        )
        timestep = TimeStep(
            jnp.where(is_first, jnp.uint8(StepType.FIRST), carry.step_type),
            jnp.where(is_first, 0.0, reward),
            jnp.ones_like(reward),
            observation,
        )
        exploration = jnp.full(len(is_first), self._epsilon, jnp.float32)
        output = self._agent.act(params, before, timestep, exploration, key)
        action = jax.vmap(functools.partial(_own_action, self.spec))(output.action)
        step_type = jnp.full_like(carry.step_type, StepType.MID)
        extras = output.extras
        if isinstance(extras, NormalizedExtras):  # what normalization stores beside is for training
            extras = extras.agent
        return PolicyStep(action, PolicyCarry(output.carry, step_type, next_key), extras)

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
        if not is_batch and size != 1:
            raise ValueError(
                f"carry: expected initial_carry() of one environment, got one of {size}; act_batch "
                "acts for several"
            )
        rewards = np.zeros(size) if rewards is None else np.asarray(rewards)
        is_first = np.zeros(size, bool) if is_first is None else np.asarray(is_first, bool)
        for name, array in (("reward", rewards), ("is_first", is_first)):
            if array.shape != (size,):
                raise ValueError(f"{name}: expected shape [{size}], got {list(array.shape)}")
        check_rewards(rewards, self._max_abs_reward)
        rows = self._rows(observations, (size,) if is_batch else ())
        action, after, extras = self._act(
            self._acting, carry, rows, rewards.astype(np.float32), is_first
        )
        action, extras = jax.tree.map(np.asarray, (action, extras))
        # An observation far beyond those of training may overflow in the network.
        for leaf in jax.tree.leaves((action, extras)):
            if leaf.dtype.kind == "f" and np.isnan(leaf).any():
                raise ValueError(
                    "expected numbers from the network, got NaN; are the observations "
                    "those of the environment that it was trained on?"
                )
        return PolicyStep(action, after, extras)

    def _rows(self, observation: Tree, head: tuple[int, ...]) -> Tree:
        # `[B, *shape]`, from observations whose shape is `head` and then that of `spec`.
        try:
            leaves = self.spec.flatten(observation)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            paths = ", ".join(path for path, _ in self.spec.leaves())
            got = type(observation).__name__
            if isinstance(observation, Mapping):
                got = f"the keys {', '.join(map(str, observation))}"
            if self.spec.has_mask and not has_mask(observation):
                got += f"; pass info[{ACTION_MASK!r}] in the observation, with key {ACTION_MASK!r}"
            raise ValueError(f"expected an observation with {paths}, got {got}") from error
        axis = f"with a batch axis of {head[0]}, as the carry" if head else "without a batch axis"
        rows = []
        for (path, spec), array in zip(self.spec.leaves(), map(np.asarray, leaves), strict=True):
            shape = head + spec.shape
            # Action masks are integers in most environments.
            kind = "int8" if spec.dtype == "bool" and array.dtype.kind in "iu" else spec.dtype
            if array.shape != shape or not np.can_cast(array.dtype, kind, "same_kind"):
                raise ValueError(
                    f"{path}: expected {spec.dtype}{list(shape)}, got {array.dtype}"
                    f"{list(array.shape)}; {axis}"
                )
            with np.errstate(over="ignore", invalid="ignore"):
                cast = array.astype(spec.dtype).reshape(-1, *spec.shape)
            # A float may be rounded; an integer that does not fit would become another one.
            if cast.dtype.kind != "f" and (cast.reshape(shape) != array).any():
                raise ValueError(f"{path}: expected numbers that fit {spec.dtype}, got another")
            rows.append(cast)
        tree = self.spec.unflatten(rows)
        # As a learner checks what env servers send.
        StepLayout(self.spec, len(rows[0])).check_observation(tree)
        return tree


def load(
    workdir: str | Path,
    *,
    seed: int = 0,
    step: int | None = None,
    best: bool = False,
    epsilon: float = 0.0,
    allow: str | Path | Sequence[str | Path] = (),
) -> Policy:
    """The policy of a run's newest checkpoint with intact parameters. Reads nothing else of it.

    If the run has no checkpoints but the best one, that is loaded.

    Args:
      workdir: the run's directory.
      seed: of its random actions, if there are any.
      step: which checkpoint to take instead of the newest.
      best: take the one that scored highest in the evaluations of the run.
      epsilon: the agent's exploration, at least 0; 0 is greedy.
      allow: directory, or directories, of Python files that the run may name as its agent or
        network. A run directory may come from anybody: by default it names only what is installed.

    Raises CheckpointError if there is no such checkpoint, or it does not fit the saved config;
    ConfigError if there is no readable config, both `step` and `best`, or a wrong `epsilon`.
    """
    if not 0 <= epsilon < math.inf:  # also refuses NaN
        raise ConfigError(f"epsilon: expected a finite number of at least 0, got {epsilon}")
    if best and step is not None:
        raise ConfigError("step and best: expected one of them, got both")
    folder = Path(workdir)
    config_io.allow(*([allow] if isinstance(allow, str | Path) else allow))
    config = config_io.load(folder / CONFIG)

    def policy_of(found: checkpoints.Checkpoint) -> Policy:
        return Policy(
            *restored(config, found),
            step=checkpoints.updates_of_params(found),
            seed=seed,
            epsilon=epsilon,
            max_abs_reward=config.environment.max_abs_reward,
        )

    return checkpoints.read(folder, policy_of, step=step, is_best=best, parts=checkpoints.PARAMS)


def restored(config: Config, found: checkpoints.Checkpoint) -> tuple[Agent, Tree, EnvSpec]:
    """A checkpoint's agent, its parameters, and the spec of its environment.

    Raises CheckpointError if they do not fit each other.
    """
    spec = checkpoints.saved_spec(found.meta["env_spec"])
    agent = build_agent(config.agent, spec)
    # Shapes alone: what is computed here would be thrown away.
    abstract = {"params": jax.eval_shape(agent.init, jax.random.key(0))}
    return agent, stored_arrays.read_tree(found.path, abstract)["params"], spec


def _own_action(spec: EnvSpec, action: Array) -> Array:
    # What the environment takes, of what the agent emits; see `BoxSpec.rescaler`.
    box = spec.action
    if not isinstance(box, BoxSpec):
        return action
    exact_low, exact_high = (np.reshape(bound, box.shape) for bound in (box.low, box.high))
    # Rounding to float32 may lead out of the box: then the next number within it is the bound.
    low, high = exact_low.astype(np.float32), exact_high.astype(np.float32)
    low = np.where(low < exact_low, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high > exact_high, np.nextafter(high, np.float32(-np.inf)), high)
    first, last = np.where(box.is_bounded, low, -1.0), np.where(box.is_bounded, high, 1.0)
    middle, half = (first + last) / 2, (last - first) / 2
    return jnp.clip(middle + half * jnp.clip(action, -box.largest, box.largest), low, high)
