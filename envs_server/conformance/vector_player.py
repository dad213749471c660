"""A vector of environments, played as an env server plays it."""

import time
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np

from envs_server.adapter import Adapter, NoStepError, metric_names
from envs_server.conformance import rules
from envs_server.conformance.findings import Findings, raised, show
from envs_server.conformance.rows import Row, digest
from envs_server.errors import BuildError
from envs_server.spaces import env_spec, to_own_actions
from envs_server.vector import VectorEnvironment, VectorStep
from seedrl.specs import EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire.framing import WireError
from seedrl.wire.payload import StepLayout
from seedrl.wire.values import ValueFaultError


class BrokenError(Exception):
    """The play cannot continue; the finding that says why was added."""


class VectorPlayer:
    """Owns environments from entering to leaving; used by one thread.

    Args:
      build: makes the environments.
      findings: where breaches go.

    Attributes:
      seconds: what stepping and packing took so far, the first reset left out.
      message_bytes: length of a message with one step of all environments.
      metrics: names of the numbers that came with the last observations of episodes.
    """

    def __init__(self, build: Callable[[], VectorEnvironment], findings: Findings) -> None:
        self._environment = build()
        self._findings = findings
        self._adapter = Adapter(self._environment._replace(step=self._watched_step))
        self._reward = np.zeros(0)
        self._number = 0
        self.seconds = 0.0
        self.message_bytes = 0
        self.metrics: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._environment.close()
        except (Exception, SystemExit) as error:
            self._findings.add(rules.CLOSE_RAISES, f"close of the back end {raised(error)}")

    def spec(self) -> EnvSpec:
        """Of one environment. Raises BrokenError."""
        environment = self._environment
        try:
            return env_spec(environment.observation_space, environment.action_space)
        except BuildError as error:
            raise self._end(rules.SPACES, str(error)) from error

    def reset(self, seeds: Sequence[int]) -> list[Row]:
        """Starts the first episodes; a row for each environment. Raises BrokenError."""
        self._spec = self.spec()
        self._to_own_actions = to_own_actions(self._environment.action_space)
        self._layout = StepLayout(self._spec, len(seeds))
        self._number = 0
        try:
            step = self._adapter.reset(seeds)
        except (Exception, SystemExit) as error:
            raise self._end(rules.BACK_END_RAISES, f"reset {raised(error)}") from error
        return self._rows(step, self._pack(step))

    def step(self, actions: np.ndarray) -> list[Row]:
        """Takes actions of the wire, `[E] int32` or `[E, *shape] float32`. Raises BrokenError."""
        self._number += 1
        own_actions = self._to_own_actions(actions)
        start = time.perf_counter()
        try:
            step = self._adapter.step(own_actions)
        except ValueFaultError as error:  # BrokenError, if the environments raised it
            rule = rules.AUTORESET if isinstance(error, NoStepError) else rules.WIRE
            raise self._end(rule, f"step {self._number}: {error}") from error
        payload = self._pack(step)
        self.seconds += time.perf_counter() - start
        rewards = self._reward[step.step_type == StepType.FIRST]
        if rewards.any():
            found = rewards[rewards != 0][0]
            text = f"step {self._number}: expected reward 0 with a first observation, got {found}"
            self._findings.add(rules.AUTORESET, text)
        return self._rows(step, payload)

    def _watched_step(self, actions: np.ndarray) -> VectorStep:
        before = actions.copy()
        try:
            result = self._environment.step(actions)
        except (Exception, SystemExit) as error:
            text = f"step {self._number} {raised(error)}"
            raise self._end(rules.BACK_END_RAISES, text) from error
        if not np.array_equal(before, actions):
            text = f"step {self._number}: expected the actions unchanged, got {actions.tolist()}"
            self._findings.add(rules.ACTION_INPUT, f"{text} from {before.tolist()}")
        self._check_arrays(result, len(actions))
        is_both = np.logical_and(result.terminated, result.truncated)
        if is_both.any():
            text = f"step {self._number}: environment {int(np.argmax(is_both))}"
            self._findings.add(rules.BOTH_FLAGS, f"{text} terminated and truncated at once")
        self._reward = np.asarray(result.reward)
        ended = np.flatnonzero(np.logical_or(result.terminated, result.truncated))
        if ended.size:
            self.metrics.update(metric_names(result.info, ended))
        return result

    def _check_arrays(self, result: VectorStep, num_envs: int) -> None:
        kinds = {"reward": "buif", "terminated": "b", "truncated": "b"}
        for name, kind in kinds.items():
            value = getattr(result, name)
            is_array = isinstance(value, np.ndarray) and value.dtype.kind in kind
            if not is_array or value.shape != (num_envs,):
                what = "numbers" if name == "reward" else "bools"
                text = f"expected {num_envs} {what} for {name}, got {show(value)}"
                raise self._end(rules.WIRE, f"step {self._number}: {text}")

    def _pack(self, step: TimeStep) -> bytes:
        try:
            payload = self._layout.pack(0, self._number, step)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._end(rules.WIRE, f"step {self._number}: {error}") from error
        self.message_bytes = len(payload)
        return payload

    def _rows(self, step: TimeStep, payload: bytes) -> list[Row]:
        try:
            received = self._layout.unpack(payload)
        except WireError as error:
            raise self._end(rules.WIRE, f"step {self._number}: {error}") from error
        leaves = self._spec.flatten(received.observation)
        return [
            Row(
                StepType(received.step_type[i]),
                float(received.reward[i]),
                float(received.discount[i]),
                digest(self._spec, [leaf[i] for leaf in leaves]),
            )
            for i in range(len(received.step_type))
        ]

    def _end(self, rule: rules.Rule, text: str) -> BrokenError:
        self._findings.add(rule, text)
        return BrokenError(text)
