"""Checks one environment by itself, before vectorisation hides what its author did."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from envs_server.conformance import rules
from envs_server.conformance.findings import Findings, raised, show
from envs_server.conformance.gymnasium_checks import check_by_gymnasium
from envs_server.conformance.rows import Row, action_rows, first_difference
from envs_server.conformance.single_player import (
    SinglePlayer,
    UnplayableError,
    check_reset_result,
    check_step_result,
)
from envs_server.errors import BuildError
from envs_server.spaces import env_spec
from seedrl.specs import DiscreteSpec, EnvSpec
from seedrl.types import StepType

Build = Callable[[], gymnasium.Env[Any, Any]]

# The largest that the wire admits.
LARGEST_SEED = 2**31 - 1
# Enough to see whether something outlives a reset.
_REPLAYED_STEPS = 200


class Alone(NamedTuple):
    """What an environment gave when it was played alone, and what its spaces declare."""

    spec: EnvSpec
    rows: list[Row]


def check_single(build: Build, findings: Findings, *, seed: int, num_steps: int) -> Alone | None:
    """Plays random actions in environments from `build`; adds what is wrong to `findings`.

    Returns:
      The first play, or None if the environment could not be played to the end.

    Raises BuildError if `build` does.
    """
    try:
        spec = _check_interface(build, findings, seed=seed)
        actions = action_rows(spec.action, num_steps, 1, seed)[:, 0]
        rows, again = _play_twice(build, spec, actions, findings, seed=seed)
        _check_actions(spec, actions, findings)
        _check_repeats(build, Alone(spec, rows), actions, findings, seed=seed)
        _check_reset(rows, again, findings, seed=seed)
        if not findings.errors:
            with _built(build, findings) as env:
                check_by_gymnasium(env, findings)
    except UnplayableError:
        return None
    return Alone(spec, rows)


@contextmanager
def _built(build: Build, findings: Findings) -> Iterator[gymnasium.Env[Any, Any]]:
    env = build()
    try:
        yield env
    finally:
        try:
            env.close()
        except (Exception, SystemExit) as error:
            findings.add(rules.CLOSE_RAISES, f"close {raised(error)}")


def _check_interface(build: Build, findings: Findings, *, seed: int) -> EnvSpec:
    env = build()
    if not isinstance(env, gymnasium.Env):
        findings.add(rules.ENVIRONMENT_CLASS, f"expected a gymnasium.Env, got {show(env)}")
        raise UnplayableError
    with _built(lambda: env, findings):
        _check_signature(env.unwrapped, findings)
        if env.unwrapped is not env:
            # Wrappers unpack results, and would only say that there were too few of them.
            _check_results(env.unwrapped, findings, seed=seed)
        try:
            return env_spec(env.observation_space, env.action_space)
        except (AttributeError, BuildError) as error:
            findings.add(rules.SPACES, str(error))
            raise UnplayableError from error


def _check_signature(env: gymnasium.Env[Any, Any], findings: Findings) -> None:
    parameters = inspect.signature(env.reset).parameters
    if any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values()):
        return
    if missing := [name for name in ("seed", "options") if name not in parameters]:
        text = f"expected reset(seed=..., options=...), it does not take {' and '.join(missing)}"
        findings.add(rules.RESET_SIGNATURE, text)
        raise UnplayableError(text)


def _check_results(env: gymnasium.Env[Any, Any], findings: Findings, *, seed: int) -> None:
    try:
        result = env.reset(seed=seed, options=None)
        env.action_space.seed(seed)
        action = env.action_space.sample()
        check_reset_result(result, findings, where="reset")
        check_step_result(env.step(action), findings, where="step 1")
    except UnplayableError:
        raise
    except (Exception, SystemExit):
        return  # with its wrappers it may work, or else will say more


def _play_twice(
    build: Build, spec: EnvSpec, actions: np.ndarray, findings: Findings, *, seed: int
) -> tuple[list[Row], list[Row]]:
    """The first play and, after another reset of the same environment, the beginning of one."""
    with _built(build, findings) as env:
        player = SinglePlayer(env, spec, findings)
        rows = [player.first(seed), *(player.next(action) for action in actions)]
        player = SinglePlayer(env, spec, findings, "after another reset, ")
        replayed = actions[:_REPLAYED_STEPS]
        return rows, [player.first(seed), *(player.next(action) for action in replayed)]


def _check_actions(spec: EnvSpec, actions: np.ndarray, findings: Findings) -> None:
    if not isinstance(spec.action, DiscreteSpec):
        return
    num_tried, num_actions = len(np.unique(actions)), spec.action.num_actions
    if num_tried < num_actions:
        findings.add(rules.UNTRIED_ACTIONS, f"tried {num_tried} of {num_actions} actions")


def _check_repeats(
    build: Build, alone: Alone, actions: np.ndarray, findings: Findings, *, seed: int
) -> None:
    """Plays two fresh environments, interleaved: one as before, one from another seed."""
    other_seed = LARGEST_SEED - seed
    with _built(build, findings) as env, _built(build, findings) as other_env:
        player = SinglePlayer(env, alone.spec, findings, "second play, ")
        other = SinglePlayer(other_env, alone.spec, findings, f"with seed {other_seed}, ")
        again, others = [player.first(seed)], [other.first(other_seed)]
        for action in actions:
            again.append(player.next(action))
            others.append(other.next(action))
    if difference := first_difference(alone.rows, again):
        _tell_chance_from_neighbours(build, alone, actions, findings, seed=seed, at=difference)
    elif first_difference(alone.rows, others) is None:
        text = f"seeds {seed} and {other_seed} gave the same {len(others)} rows"
        findings.add(rules.SEED_IGNORED, text)


def _check_reset(rows: list[Row], again: list[Row], findings: Findings, *, seed: int) -> None:
    """Reports what a reset has left over, unless the environment does not repeat itself at all."""
    difference = first_difference(rows, again)
    if difference is None or findings.has(rules.SEEDING):
        return
    if again[1].step_type == StepType.LAST != rows[1].step_type:
        text = "an episode after the first one ended at once, at step 1"
        findings.add(rules.RESET_STATE, text)
    else:
        text = f"reset(seed={seed}) of a used environment did not play as before: {difference}"
        findings.add(rules.RESEEDING, text)


def _tell_chance_from_neighbours(
    build: Build,
    alone: Alone,
    actions: np.ndarray,
    findings: Findings,
    *,
    seed: int,
    at: str,
) -> None:
    with _built(build, findings) as env:
        player = SinglePlayer(env, alone.spec, findings, "third play, ")
        again = [player.first(seed), *(player.next(action) for action in actions)]
    if difference := first_difference(alone.rows, again):
        text = f"the same seed and actions did not play the same: {difference}"
        findings.add(rules.SEEDING, text)
    else:
        text = f"it played otherwise while another environment was stepped beside it: {at}"
        findings.add(rules.ISOLATION, text)
