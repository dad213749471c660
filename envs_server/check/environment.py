"""Checks an environment: builds and plays it by the code of an env server, with random actions.

A wrapper looks at the observations that each environment returns, before the group casts and copies
them. All other faults show in the rows that a learner would receive.
"""

import contextlib
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TextIO

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from envs_server.build import Recipe, build, build_one
from envs_server.check.findings import Findings
from envs_server.failures import BuildError, EnvironmentFailedError, one_line, returned
from envs_server.groups import EnvGroup
from envs_server.stop import HangLimit
from seedrl.specs import ACTION_MASK, ActionSpec, BoxSpec, EnvSpec, TokensSpec, has_mask
from seedrl.timing import READY_DEADLINE_SECONDS, STEP_DEADLINE_SECONDS
from seedrl.types import StepType, TimeStep, Tree
from seedrl.wire.framing import FramedStep, WireError, receive_from_env_server
from seedrl.wire.learner_payload import StepReader, pack_actions

_log = logging.getLogger("envs_server")

# Rules, and how to fix what breaks them.
REMEDIES = {
    "spaces": "declare supported spaces, or add a wrapper that converts them",
    "raises": "reset and step must not raise for any action that the space and the mask allow",
    "values": "return such values at every reset and step, or add a wrapper that does",
    "close-raises": "make close() work after any reset or step",
    "observation": "clip and cast it to the declared space, or change observation_space",
    "time-limit": "set truncated at a time limit, not terminated: the last state still has a value",
    "seeding": "call super().reset(seed=seed) in reset, and draw only from self.np_random (a "
    "TokenEnv: from numpy.random.default_rng(seed)); a "
    "vector environment must ignore the action after an episode's last observation",
    "isolation": "environments share a process: keep all state and random numbers in the instance, "
    "not in the class, the module or a global generator",
    "both-flags": "it counts as terminated; set only truncated if the episode could have continued",
    "endless": "only ended episodes are scored; check more --steps, or add a TimeLimit",
    "seed-ignored": "all environments will play the same; use the seed, as by self.np_random",
    "mask-name": f"if it is an action mask, return it as info[{ACTION_MASK!r}] or as the key "
    f"{ACTION_MASK!r} of a Dict observation; under any other name it is ignored",
    "gymnasium": "see the documentation of gymnasium.Env",
}
NOTES = ("both-flags", "endless", "seed-ignored", "mask-name", "gymnasium")
_SLOW_SECONDS = 10.0  # of steps, after which it prints how long all of them take
_Limit = Callable[[float], contextlib.AbstractContextManager[object]]
# Enough to see whether two plays part.
_SHORT_PLAY_STEPS = 200
_LARGEST_SEED = 2**31 - 1
# Warnings of gymnasium's checker about things that are as they should be here: wrappers, unlimited
# bounds (they state that there is none), boxes of any width (they are scaled), numpy scalars and
# bools (it takes np.False_ for a truncation).
_NEEDLESS = re.compile(
    "different from the unwrapped|infinity|symmetric and normalized|Casting input x|image space"
    "|render|truncates after 1 step"
)


class Episode(NamedTuple):
    """An episode that was seen from FIRST to LAST."""

    length: int
    score: float
    is_terminated: bool


class Play(NamedTuple):
    """N rows of E environments, as a learner would receive them.

    Attributes:
      spec: of one environment.
      actions: `[N - 1, E, ...]`, as on the wire.
      seconds: spent stepping and packing, in one thread.
      step_type, reward, discount: `[N, E]`, as on the wire.
      digest: `[N, E] int64`, a hash of the whole row that only this process understands.
      mask: where the environment has an action mask, in words; "" if it has none.
    """

    spec: EnvSpec
    actions: np.ndarray
    seconds: float
    step_type: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    digest: np.ndarray
    mask: str = ""

    def steps_per_second(self) -> float:
        """Over all environments; a row that starts an episode is no step."""
        return np.count_nonzero(self.step_type != StepType.FIRST) / self.seconds

    def episodes(self) -> list[Episode]:
        """The episodes that ended, environment by environment."""
        found = []
        # Every FIRST is followed by its LAST before the next FIRST: nothing is cut here.
        for env, steps in enumerate(self.step_type.T):
            firsts = np.flatnonzero(steps == StepType.FIRST)
            lasts = np.flatnonzero(steps == StepType.LAST)
            for first, last in zip(firsts, lasts, strict=False):  # the last may be unfinished
                score = float(self.reward[first : last + 1, env].sum(dtype=np.float64))
                found.append(Episode(int(last - first), score, not self.discount[last, env]))
        return found


def check(
    recipe: Recipe,
    back_end: str,
    *,
    num_envs: int,
    num_steps: int,
    seed: int,
    max_abs_reward: float,
    hang: HangLimit | None = None,
) -> tuple[Findings, Play | None]:
    """Plays environments together, once more, from other seeds, and one of them alone.

    `seed` is the first environment's and the actions', the others count on from it. `hang` ends
    the process if building or a step takes longer than training allows by default. Returns what
    was found, and the first play; None if that could not be finished. Raises BuildError if an
    environment cannot be built.
    """
    findings = Findings(REMEDIES, NOTES)
    is_single = back_end == "sync"
    seeds = range(seed, seed + num_envs)
    limit: _Limit = hang.limit if hang else contextlib.nullcontext

    def play(what: Recipe, seeds: Sequence[int], actions: np.ndarray | None = None) -> Play | None:
        # A new one for each play, as at each connection: nothing may be left of the one before.
        with limit(READY_DEADLINE_SECONDS):
            environments = build(what, back_end, len(seeds), max_abs_reward=max_abs_reward)
        with _faults(environments.close, findings):
            group = EnvGroup(0, environments, seeds)
            has_own_mask = group.spec.has_mask  # that of `info` is found at the first reset
            if is_first := actions is None:
                actions = random_actions(group.spec.action, num_steps, num_envs, seed)
            found = _play(group, actions, limit, is_first=is_first)
            if found.spec.has_mask:
                source = "observation" if has_own_mask else "info"
                (size,) = found.spec.observation[ACTION_MASK].shape
                found = found._replace(mask=f"{source}[{ACTION_MASK!r}], {size} actions")
            return found
        return None

    # Rows of a vector implementation cannot be looked at one by one before they are packed.
    watched = recipe
    if is_single:
        watch = partial(_Watched, findings=findings)
        watched = recipe._replace(wrappers=(*recipe.wrappers, watch))
    # The others are not watched: what they would find was found, or is a difference.
    first = play(watched, seeds)
    if first is not None and not first.episodes():
        findings.add("endless", f"no episode ended within {num_steps:,} steps")
    if first is not None and not findings.errors:
        _play_again(first, findings, lambda *other: play(recipe, *other), seeds, is_single)
    # Its own checker repeats the errors, and knows of no mask.
    is_masked = first is not None and first.mask
    if (is_single or recipe.factory is not None) and not (findings.errors or is_masked):
        _check_by_gymnasium(recipe, findings)
    return findings, first


@contextlib.contextmanager
def own_stdout() -> Iterator[TextIO]:
    """This program's stdout, for its report: inside, what environments print goes to stderr.

    Descriptor 1 too, to which code in C writes, and which a program does not get back: threads that
    an environment has left behind go on to write.
    """
    sys.stdout.flush()
    kept, is_redirected = os.dup(1), sys.stdout is not sys.__stdout__
    stdout = sys.stdout if is_redirected else os.fdopen(kept, "w", encoding=sys.stdout.encoding)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield stdout
        stdout.flush()
    finally:
        if is_redirected:  # by a caller, which goes on
            os.dup2(kept, 1)
            os.close(kept)


# A play that cannot continue ends here, with its finding.
@contextlib.contextmanager
def _faults(close: Callable[[], None], findings: Findings) -> Iterator[None]:
    try:
        yield
    except BuildError as error:
        findings.add("spaces", str(error))
    except EnvironmentFailedError as error:
        if not findings.errors:  # else the reason was found where it arose
            is_value = isinstance(error.__cause__, WireError)
            findings.add("values" if is_value else "raises", str(error))
    finally:
        try:
            close()
        except BaseException as error:
            findings.add("close-raises", f"close raised {one_line(error)}")


def _play_again(
    first: Play,
    findings: Findings,
    play: Callable[[Sequence[int], np.ndarray], Play | None],
    seeds: Sequence[int],
    is_single: bool,
) -> None:
    actions = first.actions
    # The answer to a last observation is ignored, so any other must do as well: the one before it.
    is_last = first.step_type[:-1] == StepType.LAST
    is_last = is_last.reshape(*is_last.shape, *[1] * (actions.ndim - 2))
    again = play(seeds, np.where(is_last, np.roll(actions, 1, axis=0), actions))
    if row := _difference(first, again):
        findings.add("seeding", f"two plays with the same seeds and actions differ: {row}")
        return
    # From the other end, so that no seed is in both.
    others = [_LARGEST_SEED - seed for seed in seeds]
    if _difference(first, play(others, actions[:_SHORT_PLAY_STEPS])) == "":
        findings.add("seed-ignored", f"seeds {list(seeds)} and {others} gave the same time steps")
    # A vector implementation has one seed for all, so that none of it can be alone.
    alone = play(seeds[:1], actions[:_SHORT_PLAY_STEPS, :1]) if is_single else None
    if row := _difference(first, alone):
        findings.add("isolation", f"it plays differently without other environments: {row}")


def _difference(one: Play, other: Play | None) -> str | None:
    """Where two plays part; "" if one is the beginning of the other, None without another."""
    if other is None:
        return None
    rows, envs = np.minimum(one.digest.shape, other.digest.shape)
    unequal = np.argwhere(one.digest[:rows, :envs] != other.digest[:rows, :envs])
    return f"environment {unequal[0, 1]} from time step {unequal[0, 0]} on" if len(unequal) else ""


def random_actions(action: ActionSpec, num_rows: int, num_envs: int, seed: int) -> np.ndarray:
    """Random actions of the wire, `[num_rows, num_envs, ...]` as the spec has them.

    Each environment first tries all discrete actions, or both ends of a box.
    """
    random = np.random.default_rng(seed)
    size = (num_rows, num_envs, *action.array.shape)
    if isinstance(action, BoxSpec):
        box = random.uniform(-1, 1, size).astype(np.float32)
        box[:1], box[1:2] = -1.0, 1.0
        return box
    if isinstance(action, TokensSpec):
        return _random_completions(action, random, size)
    rows = random.integers(action.largest, size=size, dtype=np.int32, endpoint=True)
    # Each environment starts with another one.
    num_first = int(np.max(action.largest)) + 1
    each_once = np.add.outer(np.arange(num_first), np.arange(num_envs))[:num_rows]
    each_once = each_once.reshape(*each_once.shape, *[1] * len(action.array.shape))
    rows[:num_first] = each_once % (action.largest + 1)
    return rows


def _random_completions(
    tokens: TokensSpec, random: np.random.Generator, size: tuple[int, ...]
) -> np.ndarray:
    # Of any length, with an end; none asks for the question of a seed.
    rows = np.zeros(size, np.int32)
    rows[..., 1] = random.integers(1, tokens.longest_completion, size[:-1], endpoint=True)
    ids = random.integers(tokens.vocabulary, size=(*size[:-1], tokens.longest_completion))
    places = np.arange(tokens.longest_completion)
    ids[places == rows[..., 1:2] - 1] = tokens.end
    rows[..., 2:] = np.where(places < rows[..., 1:2], ids, 0)
    return rows


def legal(actions: np.ndarray, observation: Tree) -> np.ndarray:
    """Random `actions [E]`, with others in place of those that the observation's mask forbids.

    `observation [E, ...]` may have no mask.
    """
    if not has_mask(observation):
        return actions
    mask = observation[ACTION_MASK]
    # The k-th of those that are legal: all of them are tried, however few there are.
    kth = actions % np.maximum(mask.sum(axis=-1), 1)
    others = np.argmax(np.cumsum(mask, axis=-1) > kth[:, None], axis=-1).astype(actions.dtype)
    is_legal = np.take_along_axis(mask, actions[:, None], axis=-1)[:, 0]
    return np.where(is_legal, actions, others)


def _play(group: EnvGroup, actions: np.ndarray, limit: _Limit, *, is_first: bool) -> Play:
    with limit(STEP_DEADLINE_SECONDS):
        message, actions = group.first(), actions.copy()
    layout = StepReader(group.spec, actions.shape[1])
    timestep = _timestep(message, layout)
    rows, seconds = [_row(timestep, group.spec)], 0.0
    for number in range(len(actions)):
        actions[number] = legal(actions[number], timestep.observation)
        payload = memoryview(pack_actions(0, number, actions[number]))
        # The clock runs for what an env server does too, not for looking at its messages.
        start = time.perf_counter()
        with limit(STEP_DEADLINE_SECONDS):
            message = group.step(payload)
        seconds += time.perf_counter() - start
        if is_first and seconds > _SLOW_SECONDS:
            is_first, mean = False, seconds / (number + 1)
            # Of all plays; see `_play_again`.
            num_steps = 2 * (len(actions) + min(len(actions), _SHORT_PLAY_STEPS))
            _log.warning(
                f"seedrl check-env: {num_steps:,} steps of {mean:.2g} s take about "
                f"{num_steps * mean / 60:.1f} minutes; a step of over {STEP_DEADLINE_SECONDS:g} s "
                "ends the check. hint: lower --steps"
            )
        timestep = _timestep(message, layout)
        rows.append(_row(timestep, group.spec))
    step_type, reward, discount, digest = map(np.stack, zip(*rows, strict=True))
    return Play(group.spec, actions, seconds, step_type, reward, discount, digest)


def _timestep(message: FramedStep, layout: StepReader) -> TimeStep:
    payload = receive_from_env_server(message.message)
    assert isinstance(payload, memoryview), "an env server's group only sends steps"
    return layout.unpack(payload)


def _row(timestep: TimeStep, spec: EnvSpec) -> tuple[np.ndarray, ...]:
    *scalars, observation = timestep
    arrays = (*scalars, *spec.flatten(observation))
    rows = range(len(scalars[0]))
    # Hashes, because the observations of several plays would fill the memory.
    digests = [hash(tuple(array[row].tobytes() for array in arrays)) for row in rows]
    # Copies: views would keep every message, with its observations, until the end.
    return *(array.copy() for array in scalars), np.array(digests)


def _check_by_gymnasium(recipe: Recipe, findings: Findings) -> None:
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            env = build_one(recipe)
            # Nothing here renders, and `close` is checked after a play.
            check_env(env, skip_render_check=True, skip_close_check=True)
            env.close()
        except BuildError:  # it was built before: one more than there is a port or licence for
            return
        except BaseException as error:  # assertions and errors of many kinds
            texts.append(one_line(error))
    # All of them are notes: it also asks for what is not needed here.
    for text in (*texts, *(str(warning.message) for warning in caught)):
        plain = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).removeprefix("WARN: ").split())
        if not _NEEDLESS.search(plain):
            findings.add("gymnasium", plain[:300], subject=plain)


class _Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    # Adds findings about the values that an environment returns, and hands them on unchanged.
    def __init__(self, env: gymnasium.Env[Any, Any], findings: Findings) -> None:
        super().__init__(env)
        self._findings = findings
        self._max_steps = env.spec.max_episode_steps if env.spec else None  # as registered
        self._num_steps = self._length = 0

    def reset(self, **arguments: Any) -> Any:
        observation, info = returned("reset", self.env.reset(**arguments))
        self._length = 0
        self._look(f"reset after {self._num_steps:,} steps", observation)
        self._look_for_mask(observation, info)
        return observation, info

    def step(self, action: Any) -> Any:
        result = returned("step", self.env.step(action))
        observation, reward, terminated, truncated, info = result
        self._num_steps, self._length = self._num_steps + 1, self._length + 1
        where = f"step {self._num_steps}"
        self._look(where, observation)
        if terminated and truncated:
            self._findings.add("both-flags", f"{where}: terminated and truncated at once")
        elif self._max_steps and self._length >= self._max_steps and not truncated:
            limit = f"the limit of {self._max_steps} steps in the environment's spec"
            self._findings.add("time-limit", f"{where}: expected truncated at {limit}")
        return observation, reward, terminated, truncated, info

    def _look(self, where: str, value: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a Box takes a scalar of numpy, but warns of it
            outside = list(_outside("", self.env.observation_space, value))
        for path, space, part in outside:
            got = f"{type(part).__name__} {part}"[:100]
            if isinstance(part, np.ndarray | np.generic):
                got = f"{part.dtype}{list(part.shape)}"
                if part.size and part.dtype.kind in "biuf":  # others have no smallest number
                    got += f" from {float(np.min(part)):.6g} to {float(np.max(part)):.6g}"
            elif isinstance(part, dict):
                got = f"the keys {', '.join(map(str, part))}"[:100]
            name = f"{path}: " if path else ""
            text = f"{where}: {name}expected {str(space)[:100]}, got {got}"
            self._findings.add("observation", " ".join(text.split()), subject=path)

    def _look_for_mask(self, observation: Any, info: dict[Any, Any]) -> None:
        # Under another name a mask has no effect, and training continues without it.
        action = self.env.action_space
        if not isinstance(action, spaces.Discrete) or has_mask(observation) or ACTION_MASK in info:
            return
        if hasattr(self.env.unwrapped, "action_masks"):  # sb3-contrib calls this method
            self._findings.add("mask-name", "the method action_masks() is not called")
        for name, value in info.items():
            if _is_flags(value, (action.n,)):
                text = f"info[{name!r}] has one flag for each of the {action.n} actions"
                self._findings.add("mask-name", text, subject=str(name))


def _is_flags(value: Any, shape: tuple[int, ...]) -> bool:
    is_flags = isinstance(value, np.ndarray) and value.shape == shape and value.dtype.kind in "biu"
    return is_flags and bool(np.isin(value, (0, 1)).all())


def _outside(
    path: str, space: spaces.Space[Any], value: Any
) -> Iterator[tuple[str, spaces.Space[Any], Any]]:
    # The innermost parts of a space that do not contain their part of a value.
    if space.contains(value):
        return
    parts: list[tuple[Any, spaces.Space[Any], Any]] = []
    if isinstance(space, spaces.Dict) and isinstance(value, dict) and space.keys() == value.keys():
        parts = [(key, part, value[key]) for key, part in space.items()]
    elif isinstance(space, spaces.Tuple) and isinstance(value, tuple) and len(space) == len(value):
        parts = [(place, *pair) for place, pair in enumerate(zip(space, value, strict=True))]
    if not parts:
        yield path, space, value
    for key, part, item in parts:
        yield from _outside(f"{path}.{key}" if path else f"{key}", part, item)
