"""Steps single environments one after another; one that fails is built again by itself.

With NEXT_STEP autoreset an episode that has ended starts anew on the next step, for an action that
is ignored. Because the loop is ours, the environment that fails is known, and the others keep their
episodes.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from envs_server.failures import BuildError, EnvironmentFailedError, Failures, Progress, returned
from envs_server.groups import VectorStep
from envs_server.spaces import env_spec, with_info_mask
from seedrl.specs import ACTION_MASK, ArraySpec, EnvSpec, TokensSpec
from seedrl.types import NEXT, StepType, TimeStep, Tree
from seedrl.wire.payload import StepLayout, ValueFaultError, check_rewards

_log = logging.getLogger("envs_server")

Env = gymnasium.Env[Any, Any]
_FIRST, _MID, _LAST = StepType.FIRST.value, StepType.MID.value, StepType.LAST.value
_NOTHING = object()  # in place of what an environment returns


class Loop:
    """Owns the single environments of a group; a `VectorEnvironment`. Used by one thread.

    Anything that an environment raises counts in `failures` at its position there, and it is built
    again with a seed of its own.
    """

    def __init__(
        self,
        build_one: Callable[[], Env],
        *,
        max_abs_reward: float,
        positions: Sequence[int],
        failures: Failures,
    ) -> None:
        """Builds one environment for each of `positions`.

        Raises BuildError if the first environment of all cannot be built.
        """
        self._build_one, self._failures = build_one, failures
        self._max_abs_reward, self._positions = max_abs_reward, positions
        self._num_restarts = 0
        # Memory, and whether `info` has masks: decided at the very first reset.
        self._is_allocated = self._has_info_mask = False
        self._envs: list[Env] = []
        try:
            for row in range(len(positions)):
                self._envs.append(self._build(row))
        except BaseException:
            with contextlib.suppress(BaseException):  # why one cannot be built is reported
                self.close()
            raise
        self.action_space = self._envs[0].action_space

    @functools.cached_property
    def spec(self) -> EnvSpec:
        """Of one environment; with the action mask of `info`, if there is one, after `reset`."""
        return env_spec(self._envs[0].observation_space, self.action_space)

    def reset(self, seeds: Sequence[int]) -> Tree:
        """Starts new episodes, each from its seed; observations `[E, *shape]`."""
        self._start_step(StepType.FIRST)
        self._seeds = seeds
        failed: dict[int, BaseException] = {}
        for row, env in enumerate(self._envs):
            try:
                self._begin(row, env.reset(seed=int(seeds[row])))
                self._failures.progress = max(self._failures.progress, Progress.RESET)
            except BaseException as error:
                failed[row] = error
        # Only now: if another one could be reset, the configuration is right.
        for row, first in failed.items():
            self._restart(row, "reset", first)
        self._settle("reset")
        return self._observation

    def step(self, actions: np.ndarray) -> VectorStep:
        """Steps all, resets those whose episode is over, and builds again those that fail."""
        is_over = (self._step_type == _LAST).tolist()
        self._start_step(StepType.MID)
        for row, env in enumerate(self._envs):
            result: Any = _NOTHING
            try:
                kind = _MID
                if is_over[row]:
                    # Only of tokens the action that answers the end of an episode has a meaning.
                    own: Any = {"options": {"completion": actions[row]}} if self._is_tokens else {}
                    observation, info = returned("reset", env.reset(**own))
                    result, kind = (observation, 0.0, False, False, info), _FIRST
                else:
                    result = env.step(actions[row])
                observation, reward, terminated, truncated, info = result
                # Of tokens, an answer may name the question that is asked next.
                if self._is_tokens and terminated and actions[row][0]:
                    observation, _ = env.reset(options={"completion": actions[row]})
                    kind = NEXT
                elif terminated or truncated:
                    kind = _LAST
                    # The last observation of a truncated episode has a value, which bootstraps.
                    self._discount[row] = not terminated
                # Where there are no masks, an episode's start and end are looked at.
                if self._has_info_mask or kind != _MID:
                    observation = self._with_mask(row, observation, info)
                    self._step_type[row] = kind
                self._write(row, observation)
                if reward is None:  # numpy would store it as NaN
                    raise TypeError("expected a number as reward, got None")
                self._reward[row] = reward
                self._infos[row] = info
            # All: SystemExit and KeyboardInterrupt of an environment are no wish to stop, which
            # arrives as a signal (`envs_server.stop`).
            except BaseException as error:
                where = "reset" if is_over[row] else "step"
                self._restart(row, where, _explained(error, result))
        self._settle("step")
        self._failures.stepped(self._step_type)
        reward = self._reward.astype(np.float32)
        timestep = TimeStep(self._step_type, reward, self._discount, self._observation)
        return VectorStep(timestep, self._infos.__getitem__)

    def _start_step(self, kind: StepType) -> None:
        # The rows of a step, before anything of it is known.
        num_envs = len(self._envs)
        self._step_type = np.full(num_envs, kind, np.uint8)
        self._discount = np.ones(num_envs, np.float32)
        self._reward = np.zeros(num_envs, np.float64)
        self._infos: list[Any] = [{}] * num_envs

    def close(self) -> None:
        """Closes every environment, also if one raises; then the first error is raised."""
        with contextlib.ExitStack() as stack:
            for env in self._envs:
                stack.callback(env.close)
            self._envs = []  # a second call does nothing

    def _settle(self, where: str) -> None:
        # Builds again each environment that gave a number which a learner cannot take.
        while True:
            try:
                check_rewards(self._reward, self._max_abs_reward)
                self._check_observation(self._observation, self._discount)
                return
            except ValueFaultError as error:
                self._restart(error.row, where, error)

    def _begin(self, row: int, result: Any) -> None:
        # Takes what an environment returned from its first reset. The very first decides if all
        # get masks of `info`; the group knows by then that the spaces have a spec.
        observation, info = returned("reset", result)
        if not self._is_allocated:
            self._has_own_mask = self.spec.has_mask
            self._is_dict = isinstance(self.spec.observation, Mapping)
            self._is_tokens = isinstance(self.spec.action, TokensSpec)
            self._has_info_mask = not self._has_own_mask and _has_mask(info)
            if self._has_info_mask:
                self.spec = with_info_mask(self.spec)
            num_envs = len(self._envs)
            self._check_observation = StepLayout(self.spec, num_envs).check_observation
            self._observation, self._write = _writer("observation", self.spec.observation, num_envs)
            self._is_allocated = True
        self._write(row, self._with_mask(row, observation, info))

    def _with_mask(self, row: int, observation: Any, info: Any) -> Any:
        # The observation next to the mask of `info`: that is there always or never.
        if self._has_own_mask:
            return observation
        if _has_mask(info) is not self._has_info_mask:
            expected = "an action mask" if self._has_info_mask else "no action mask"
            text = f"expected {expected} in info[{ACTION_MASK!r}], as at the first reset"
            raise ValueFaultError(text, row)
        if not self._has_info_mask:
            return observation
        others = observation if self._is_dict else {"observation": observation}
        return {**others, ACTION_MASK: info[ACTION_MASK]}

    def _build(self, row: int) -> Env:
        # Tries until it succeeds or the row's budget is spent. Only the very first failure of all
        # shows that the configuration is wrong: BuildError.
        while True:
            try:
                env = self._build_one()
                break
            except BuildError as error:
                if self._failures.progress < Progress.BUILT:
                    raise
                _log.error(self._failures.failed(self._positions[row], "constructor", error))
        for name in ("observation_space", "action_space"):
            first = getattr(self._envs[0] if self._envs else env, name)
            if first != getattr(env, name):
                text = f"expected environments of one {name}: {first}, got {getattr(env, name)}"
                with contextlib.suppress(BaseException):  # the difference is what is reported
                    env.close()
                raise BuildError(text)
        self._failures.progress = max(self._failures.progress, Progress.BUILT)
        return env

    def _restart(self, row: int, where: str, error: BaseException) -> None:
        # Builds the row's environment again and starts an episode: its stream is cut there. Raises
        # EnvironmentFailedError if its budget is spent.
        while True:
            _log.error(self._failures.failed(self._positions[row], where, error))
            with contextlib.suppress(BaseException):  # it has failed already
                self._envs[row].close()
            try:
                self._envs[row] = self._build(row)
                # A seed that was not used before, so that no episode is played twice.
                self._num_restarts += 1
                sequence = np.random.SeedSequence([int(self._seeds[row]), self._num_restarts])
                seed = int(sequence.generate_state(1)[0]) >> 1
                self._begin(row, self._envs[row].reset(seed=seed))
                self._failures.progress = max(self._failures.progress, Progress.RESET)
                break
            except EnvironmentFailedError:
                raise
            except BaseException as again:
                where, error = "restart", again
        self._step_type[row], self._discount[row], self._reward[row] = _FIRST, 1, 0
        self._infos[row] = {}


def _has_mask(info: Any) -> bool:
    # All else in `info` is the environment's own affair, a dict whose methods raise too.
    return isinstance(info, dict) and dict.__contains__(info, ACTION_MASK)


def _explained(error: BaseException, result: Any) -> BaseException:
    # The error in words that name what the environment has returned, if it came of that; `result`
    # is _NOTHING if none was. Only now: a look at every result would slow each step down.
    if result is _NOTHING or not isinstance(error, TypeError | ValueError):
        return error
    try:
        reward = returned("step", result)[1]
    except TypeError as better:
        return better
    try:
        np.zeros(1)[0] = reward
    except (TypeError, ValueError):
        return TypeError(f"expected a number as reward, got {type(reward).__name__}")
    return error


def _writer(path: str, spec: Tree, num_envs: int) -> tuple[Tree, Callable[[int, Any], None]]:
    """Memory for observations `[E, *shape]`, and a function that writes one row of it.

    The function raises ValueFaultError for another shape, or a number that the dtype cannot hold.
    """
    if not isinstance(spec, ArraySpec):
        is_dict = isinstance(spec, Mapping)
        inner = dict(spec.items() if is_dict else enumerate(spec))
        parts = {key: _writer(f"{path}.{key}", item, num_envs) for key, item in inner.items()}

        def write_parts(row: int, value: Any) -> None:
            for key, (_, write_part) in parts.items():
                try:
                    part = value[key]
                except (LookupError, TypeError) as error:
                    got = (
                        f"the keys {[*value]}" if isinstance(value, dict) else type(value).__name__
                    )
                    raise ValueFaultError(f"expected {path}.{key}, got {got!s:.80}", row) from error
                write_part(row, part)

        leaves = {key: leaf for key, (leaf, _) in parts.items()}
        return (leaves if is_dict else tuple(leaves.values())), write_parts
    shape, dtype = spec.shape, np.dtype(spec.dtype)
    memory = np.zeros((num_envs, *shape), dtype)

    def write(row: int, value: Any) -> None:
        if type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
            value = _fitted(row, value, path, shape, dtype)
        memory[row] = value

    return memory, write


def _fitted(
    row: int, value: Any, path: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray:
    """`value` in the dtype that its space declares, if that changes none of its numbers."""
    try:
        array = np.asarray(value)
        # The imaginary part would be lost; of text and objects `isfinite` below cannot tell.
        if array.dtype.kind in "cSU" or (array.dtype.kind == "O" and dtype.kind == "f"):
            raise TypeError
        with np.errstate(all="ignore"):
            cast = array.astype(dtype)
    except (TypeError, ValueError) as error:
        text = f"expected numbers of shape {shape} as {path}, got {value!r:.80}"
        raise ValueFaultError(text, row) from error
    if array.shape != shape:
        text = f"expected shape {shape} of {path}, got {array.shape}"
        raise ValueFaultError(text, row)
    # Rounding is no change: only what becomes infinite, or another whole number.
    fits = np.isfinite(cast) == np.isfinite(array) if dtype.kind == "f" else cast == array
    if not np.all(fits):
        wrong = array[~fits].flat[0]
        text = f"expected {path} to fit into {dtype}, got {wrong} of {array.dtype}"
        raise ValueFaultError(text, row)
    return cast
