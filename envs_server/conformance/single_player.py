"""Plays one environment by gymnasium's own calls and looks at everything that it returns."""

from typing import Any

import gymnasium
import numpy as np

from envs_server.conformance import rules
from envs_server.conformance.findings import Findings, raised, show
from envs_server.conformance.observations import check_observation
from envs_server.conformance.rows import Row, digest
from envs_server.spaces import to_own_actions
from seedrl.specs import EnvSpec
from seedrl.types import StepType, Tree


class UnplayableError(Exception):
    """The environment cannot be played on; the finding that says why was added."""


class SinglePlayer:
    """Plays an environment that somebody else owns; used by one thread.

    Rows come as an env server's would: the one after LAST is FIRST, and its action is ignored.

    Args:
      env: the environment, with its wrappers.
      spec: what its spaces declare.
      findings: where breaches go.
      name: for their texts, e.g. `second play, `.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], spec: EnvSpec, findings: Findings, name: str = ""
    ) -> None:
        self._env, self._spec, self._findings, self._name = env, spec, findings, name
        self._to_own_actions = to_own_actions(env.action_space)
        self._max_steps = env.spec.max_episode_steps if env.spec else None
        self._num_steps = self._length = 0
        self._is_over = False
        # What was returned last, by reference, and its digest at that time.
        self._kept: tuple[str, Tree, bytes] | None = None

    def first(self, seed: int) -> Row:
        """Starts the first episode. Raises UnplayableError."""
        self._num_steps = 0
        # As the sync back end calls it: an environment without `options` fails here as there.
        return self._reset("reset", seed=seed, options=None)

    def next(self, action: np.ndarray) -> Row:
        """Takes one action of the wire, int32 or `[*shape] float32`. Raises UnplayableError."""
        if self._is_over:
            return self._reset(f"reset after step {self._num_steps}")
        self._num_steps += 1
        self._length += 1
        where = f"{self._name}step {self._num_steps}"
        own_action = self._to_own_actions(np.asarray(action)[None])[0]
        try:
            result = self._env.step(own_action)
        except (Exception, SystemExit) as error:
            is_fresh = self._length == 1 < self._num_steps
            after = ", the first after a reset," if is_fresh else ""
            text = f"{where} with action {own_action.tolist()}{after} {raised(error)}"
            rule = rules.RESET_STATE if is_fresh else rules.STEP_RAISES
            raise self._end(rule, text) from error
        check_step_result(result, self._findings, where=where)
        observation, reward, terminated, truncated, _ = result
        digested = self._observe(where, observation)
        is_terminated, is_truncated = self._flags(where, terminated, truncated)
        self._is_over = is_terminated or is_truncated
        return Row(
            StepType.LAST if self._is_over else StepType.MID,
            self._reward(where, reward),
            1.0 - is_terminated,
            digested,
        )

    def _reset(self, at: str, **arguments: Any) -> Row:
        where = f"{self._name}{at}"
        self._length, self._is_over = 0, False
        try:
            result = self._env.reset(**arguments)
        except (Exception, SystemExit) as error:
            raise self._end(rules.RESET_RAISES, f"{where} {raised(error)}") from error
        check_reset_result(result, self._findings, where=where)
        return Row(StepType.FIRST, 0.0, 1.0, self._observe(where, result[0]))

    def _observe(self, where: str, observation: Tree) -> bytes:
        if not check_observation(
            self._env.observation_space, observation, self._findings, where=where
        ):
            raise UnplayableError
        digested = digest(self._spec, self._spec.flatten(observation))
        if self._kept:
            before, kept, kept_digest = self._kept
            if not self._is_unchanged(kept, kept_digest):
                self._findings.add(
                    rules.OBSERVATION_ALIASING,
                    f"the observation returned by {before} had changed after {where}",
                )
        self._kept = where, observation, digested
        return digested

    def _is_unchanged(self, kept: Tree, kept_digest: bytes) -> bool:
        try:
            return digest(self._spec, self._spec.flatten(kept)) == kept_digest
        except (KeyError, ValueError):  # the tree itself was changed
            return False

    def _reward(self, where: str, reward: Any) -> float:
        if not isinstance(reward, int | float | np.integer | np.floating | np.bool_):
            self._findings.add(
                rules.REWARD_SCALAR, f"{where}: expected a number as reward, got {show(reward)}"
            )
            return 0.0
        with np.errstate(over="ignore"):
            value = float(np.float32(reward))
        if not np.isfinite(value):
            self._findings.add(
                rules.REWARD_FINITE, f"{where}: expected a finite reward, got {reward}"
            )
            return 0.0
        return value

    def _flags(self, where: str, terminated: Any, truncated: Any) -> tuple[bool, bool]:
        flags = {"terminated": terminated, "truncated": truncated}
        for name, flag in flags.items():
            if not isinstance(flag, bool | np.bool_):
                text = f"{where}: expected a bool as {name}, got {show(flag)}"
                self._findings.add(rules.FLAGS, text, subject=name)
        try:
            is_terminated, is_truncated = bool(terminated), bool(truncated)
        except ValueError as error:  # an array of several
            raise UnplayableError from error
        self._check_end(where, is_terminated, is_truncated)
        return is_terminated, is_truncated

    def _check_end(self, where: str, is_terminated: bool, is_truncated: bool) -> None:
        if is_terminated and is_truncated:
            self._findings.add(rules.BOTH_FLAGS, f"{where}: terminated and truncated at once")
        elif self._max_steps and self._length >= self._max_steps and not is_truncated:
            found = "only terminated" if is_terminated else "neither flag"
            self._findings.add(
                rules.TIME_LIMIT,
                f"{where}: expected truncated at step {self._max_steps} of an episode, the limit "
                f"in the environment's spec, got {found} at step {self._length}",
            )

    def _end(self, rule: rules.Rule, text: str) -> UnplayableError:
        self._findings.add(rule, text)
        return UnplayableError(text)


def check_reset_result(result: Any, findings: Findings, *, where: str) -> None:
    """Raises UnplayableError, with a finding, if `result` of a reset is not (observation, info)."""
    if not isinstance(result, tuple) or len(result) != 2:
        text = f"{where}: expected (observation, info), got {show(result)}"
        findings.add(rules.RESET_RESULT, text)
        raise UnplayableError(text)
    _check_info(result[1], findings, where=where)


def check_step_result(result: Any, findings: Findings, *, where: str) -> None:
    """Raises UnplayableError, with a finding, if `result` of a step is not a tuple of five."""
    if not isinstance(result, tuple) or len(result) != 5:
        old = ", as in the API of gym" if isinstance(result, tuple) and len(result) == 4 else ""
        text = f"{where}: expected a tuple of 5, got {show(result)}{old}"
        findings.add(rules.STEP_RESULT, text)
        raise UnplayableError(text)
    _check_info(result[4], findings, where=where)


def _check_info(info: Any, findings: Findings, *, where: str) -> None:
    if not isinstance(info, dict):
        findings.add(rules.INFO, f"{where}: expected a dict as info, got {show(info)}")
