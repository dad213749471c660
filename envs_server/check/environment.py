"""Checks an environment: builds and steps it by the code of an env server, with random actions.

Around each environment is a wrapper that looks at the values which it returns, before the group
casts and copies them. Everything else shows in the rows that a learner would receive.
"""

import contextlib
import functools
import hashlib
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from envs_server.build import Recipe, build, build_one
from envs_server.check.findings import Findings
from envs_server.errors import BuildError, EnvironmentFailedError, one_line
from envs_server.groups import EnvGroup
from envs_server.spaces import env_spec
from envs_server.vector import VectorEnvironment
from seedrl.specs import ActionSpec, BoxSpec, EnvSpec
from seedrl.types import StepType
from seedrl.wire.framing import FramedStep, decode_from_env_server
from seedrl.wire.payload import StepLayout, pack_actions

# Rules, and how to fix what breaks them.
ADVICE = {
    "spaces": "declare other spaces, or wrap the environment in one that does",
    "fails": "it must take every action of its space, and return finite numbers of 32 bits, of the "
    "shapes and dtypes that its spaces declare",
    "close-raises": "close must work once, whatever went before",
    "observation": "return what observation_space declares every time, or declare what is meant",
    "time-limit": "set truncated at a time limit, not terminated: the last state still has a value",
    "seeding": "call super().reset(seed=seed) in reset, draw only from self.np_random; a vector "
    "implementation ignores the action that follows a last observation",
    "isolation": "environments share a process: keep all state, random numbers included, in the "
    "instance and not in the class, the module or a global generator",
    "both-flags": "it counts as terminated; set only truncated where the state could have gone on; "
    "nothing is to be fixed where the episode truly ended in the limit's last step",
    "endless": "only ended episodes are scored: look further with --steps, or add a TimeLimit",
    "seed-ignored": "all environments will play the same; if anything is meant to be random, draw "
    "it from self.np_random after super().reset(seed=seed)",
    "gymnasium": "see the documentation of gymnasium.Env",
}
NOTES = frozenset({"both-flags", "endless", "seed-ignored", "gymnasium"})
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


class Play(NamedTuple):
    """N rows of E environments, as a learner would receive them.

    Attributes:
      spec: of one environment.
      step_type: `[N, E] uint8`.
      reward: `[N, E] float32`; 0 on FIRST.
      discount: `[N, E] float32`; 0 where an episode terminated.
      observation: `[N, E] uint64`, a digest of each.
      seconds: time spent stepping and packing, in one thread.
    """

    spec: EnvSpec
    step_type: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    observation: np.ndarray
    seconds: float

    @property
    def num_steps(self) -> int:
        """Agent steps over all environments; a row that starts an episode is none."""
        return int((self.step_type != StepType.FIRST).sum())

    @property
    def episodes(self) -> list["Episode"]:
        """The episodes that ended, environment by environment."""
        return [episode for env in range(self.step_type.shape[1]) for episode in self.of(env)]

    def of(self, env: int) -> Iterator["Episode"]:
        """The episodes of one environment that ended, in order."""
        firsts = np.flatnonzero(self.step_type[:, env] == StepType.FIRST)
        lasts = np.flatnonzero(self.step_type[:, env] == StepType.LAST)
        for first, last in zip(firsts, lasts, strict=False):
            score = float(self.reward[first : last + 1, env].sum(dtype=np.float64))
            yield Episode(int(last - first), score, not self.discount[last, env])


class Episode(NamedTuple):
    """An episode that was seen from FIRST to LAST."""

    length: int
    score: float
    is_terminated: bool


class Checked(NamedTuple):
    """The outcome of a check.

    Attributes:
      findings: broken rules.
      play: the first one; None if it could not be finished.
    """

    findings: Findings
    play: Play | None


def check(
    recipe: Recipe,
    back_end: str,
    *,
    num_envs: int,
    num_steps: int,
    seed: int,
    max_abs_reward: float = 0.0,
) -> Checked:
    """Plays environments of `recipe`, and those of other seeds, alone and once more.

    Args:
      recipe: see `read_recipe`.
      back_end: its name, see `build.choose`.
      num_envs: environments that are stepped together.
      num_steps: of each environment.
      seed: of the first environment and of the actions; the others count on from it.
      max_abs_reward: bound of rewards, 0 for none.

    Raises BuildError if it cannot be built.
    """
    findings = Findings(ADVICE, NOTES)
    watch = functools.partial(_watched, findings=findings)
    watched = recipe._replace(wrappers=(*recipe.wrappers, watch)) if back_end == "sync" else recipe
    seeds = [seed + env for env in range(num_envs)]

    def play(what: Recipe, seeds: Sequence[int], actions: np.ndarray | None = None) -> Play:
        environments = build(what, back_end, len(seeds), max_abs_reward=max_abs_reward)
        try:
            if actions is None:
                action = env_spec(environments.observation_space, environments.action_space).action
                actions = random_actions(action, num_steps, len(seeds), seed)
            return _play(environments, seeds, actions, findings)
        except BuildError as error:
            findings.add("spaces", str(error))
            raise _BrokenError from error
        finally:
            try:
                environments.close()
            except (Exception, SystemExit) as error:
                findings.add("close-raises", f"close raised {one_line(error)}")

    first = None
    with contextlib.suppress(_BrokenError):
        first = play(watched, seeds)
        if not first.episodes:
            findings.add("endless", f"no episode ended within {num_steps:,} steps")
        actions = random_actions(first.spec.action, num_steps, num_envs, seed)
        if not findings.errors:
            _check_repeats(first, actions, functools.partial(play, recipe), findings, seeds)
        if back_end == "sync" and not findings.errors:
            alone = play(recipe, seeds[:1], actions[:_SHORT_PLAY_STEPS, :1])
            if parted := difference(first, alone):
                findings.add("isolation", f"it plays otherwise when it is alone: {parted}")
    if back_end == "sync" or recipe.factory is not None:
        with contextlib.suppress(BuildError):  # one more than there is a port or licence for
            _check_single(build_one(recipe), findings)
    return Checked(findings, first)


def random_actions(action: ActionSpec, num_rows: int, num_envs: int, seed: int) -> np.ndarray:
    """Random actions of the wire: `[num_rows, num_envs] int32` or `[..., *shape] float32`.

    Each environment first tries all discrete actions, in random order, or both ends of a box; then
    each action is drawn by itself, so that a walk gets as far as under a policy that knows nothing.
    """
    random = np.random.default_rng(seed)
    if isinstance(action, BoxSpec):
        boxes = [random.uniform(-1, 1, (num_rows, *action.shape)) for _ in range(num_envs)]
        rows = np.stack(boxes, axis=1).astype(np.float32)
        rows[:1], rows[1:2] = -1.0, 1.0
        return rows
    columns = []
    for _ in range(num_envs):
        each_once = random.permutation(action.num_actions)[:num_rows]
        more = random.integers(action.num_actions, size=max(0, num_rows - action.num_actions))
        columns.append(np.concatenate([each_once, more]))
    return np.stack(columns, axis=1).astype(np.int32)


def difference(one: Play, other: Play) -> str | None:
    """Where two plays part, and in which fields; None if one is the beginning of the other."""
    rows, envs = np.minimum(one.step_type.shape, other.step_type.shape)
    unequal = {
        name: getattr(one, name)[:rows, :envs] != getattr(other, name)[:rows, :envs]
        for name in ("step_type", "reward", "discount", "observation")
    }
    places = np.argwhere(np.any(list(unequal.values()), axis=0))
    if not len(places):
        return None
    row, env = places[0].tolist()
    fields = " and ".join(name for name, mask in unequal.items() if mask[row, env])
    return f"environment {env}, row {row}: another {fields}"


class _BrokenError(Exception):
    """The play cannot continue; the finding that has the reason was added."""


def _play(
    environments: VectorEnvironment,
    seeds: Sequence[int],
    actions: np.ndarray,
    findings: Findings,
) -> Play:
    group = EnvGroup(0, environments, seeds)
    layout = StepLayout(group.spec, len(seeds))
    rows, seconds = [], 0.0
    try:
        message = group.first()
        rows.append(_row(message, layout, group.spec))
        for number, row in enumerate(actions):
            payload = memoryview(pack_actions(0, number, row))
            start = time.perf_counter()
            message = group.step(payload)
            seconds += time.perf_counter() - start
            rows.append(_row(message, layout, group.spec))
    except EnvironmentFailedError as error:
        if not findings.errors:  # else the reason was found where it arose
            findings.add("fails", str(error))
        raise _BrokenError from error
    step_type, reward, discount, observation = map(np.stack, zip(*rows, strict=True))
    return Play(group.spec, step_type, reward, discount, observation, seconds)


def _row(message: FramedStep, layout: StepLayout, spec: EnvSpec) -> tuple[np.ndarray, ...]:
    payload = decode_from_env_server(message.message)
    assert isinstance(payload, memoryview), "an env server's group only sends steps"
    step_type, reward, discount, observation = layout.unpack(payload)
    digests = []
    for env in range(len(step_type)):
        state = hashlib.blake2b(digest_size=8)
        for leaf in spec.flatten(observation):
            state.update(np.ascontiguousarray(leaf[env]).tobytes())
        digests.append(int.from_bytes(state.digest(), "little"))
    return step_type.copy(), reward.copy(), discount.copy(), np.array(digests, np.uint64)


def _check_repeats(
    first: Play,
    actions: np.ndarray,
    play: Callable[[Sequence[int], np.ndarray], Play],
    findings: Findings,
    seeds: Sequence[int],
) -> None:
    """Plays once more, with other actions after last observations, and from other seeds."""
    # The answer to a last observation is ignored, so any other must do as well.
    is_last = (first.step_type[:-1] == StepType.LAST).reshape(
        *first.step_type[:-1].shape, *[1] * (actions.ndim - 2)
    )
    action = first.spec.action
    others = -actions if isinstance(action, BoxSpec) else (actions + 1) % action.num_actions
    again = play(seeds, np.where(is_last, others, actions).astype(actions.dtype))
    if parted := difference(first, again):
        findings.add("seeding", f"the same seeds and actions did not play the same: {parted}")
        return
    other_seeds = [_LARGEST_SEED - seed for seed in seeds]
    other = play(other_seeds, actions[:_SHORT_PLAY_STEPS])
    if difference(first, other) is None:
        text = f"seeds {list(seeds)} and {other_seeds} gave the same {len(other.reward)} rows"
        findings.add("seed-ignored", text)


def _check_single(env: gymnasium.Env[Any, Any], findings: Findings) -> None:
    """By gymnasium's own checker, whose complaints are notes: it also asks for needless things."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True, skip_close_check=True)
            texts = []
        except (Exception, SystemExit) as error:  # assertions and errors of many kinds
            texts = [one_line(error)]
        with contextlib.suppress(Exception):  # reported already, if it fails
            env.close()
    for text in (*texts, *(str(warning.message) for warning in caught)):
        plain = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).removeprefix("WARN: ").split())
        if not _NEEDLESS.search(plain):
            findings.add("gymnasium", plain[:300], subject=plain)


def _watched(env: Any, *, findings: Findings) -> Any:
    # What is no environment is refused by the env server's own code, in its own words.
    return _Watched(env, findings) if isinstance(env, gymnasium.Env) else env


class _Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds findings about the values that an environment returns, and hands them on unchanged."""

    def __init__(self, env: gymnasium.Env[Any, Any], findings: Findings) -> None:
        super().__init__(env)
        self._findings = findings
        self._max_steps = env.spec.max_episode_steps if env.spec else None
        self._num_steps = self._length = 0

    def reset(self, **arguments: Any) -> Any:
        """As the env server calls it."""
        observation, info = self.env.reset(**arguments)
        self._length = 0
        self._look(f"reset after step {self._num_steps}", observation)
        return observation, info

    def step(self, action: Any) -> Any:
        """As the env server calls it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._num_steps, self._length = self._num_steps + 1, self._length + 1
        where = f"step {self._num_steps}"
        self._look(where, observation)
        if terminated and truncated:
            self._findings.add("both-flags", f"{where}: terminated and truncated at once")
        elif self._max_steps and self._length >= self._max_steps and not truncated:
            self._findings.add(
                "time-limit",
                f"{where}: expected truncated at step {self._max_steps} of an episode, the limit "
                f"in the environment's spec, got {'only terminated' if terminated else 'no flag'}",
            )
        return observation, reward, terminated, truncated, info

    def _look(self, where: str, observation: Any) -> None:
        if fault := _fault(self.env.observation_space, observation):
            self._findings.add("observation", f"{where}: {fault}")


def _fault(space: spaces.Space[Any], value: Any) -> str:
    """The difference between an observation and its space; "" if there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a Box takes a scalar of numpy, but warns of it
        if space.contains(value):
            return ""
    expected, got = str(space), f"{type(value).__name__} {value}"
    if isinstance(value, np.ndarray | np.generic) and space.shape is not None:
        expected, got = f"{space.dtype}{list(space.shape)}", f"{value.dtype}{list(value.shape)}"
        if expected == got:  # then it is the values
            expected, got = str(space), f"{np.min(value)} to {np.max(value)}"
    return " ".join(f"expected {expected[:100]}, got {got[:100]}".split())
