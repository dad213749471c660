"""Checks environments as training sees them: vectorised by a back end, and packed for the wire."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from envs_server.conformance import rules
from envs_server.conformance.findings import Findings
from envs_server.conformance.rows import (
    Episode,
    Row,
    action_rows,
    episodes,
    first_difference,
    other_actions,
)
from envs_server.conformance.single import LARGEST_SEED, Alone
from envs_server.conformance.vector_player import BrokenError, VectorPlayer
from envs_server.vector import VectorEnvironment
from seedrl.specs import EnvSpec
from seedrl.types import StepType

# Enough to see whether two seeds play differently.
_SHORT_PLAY_STEPS = 200
# Fewer episodes of one length may be chance.
_LEAST_EPISODES = 5

Build = Callable[[], VectorEnvironment]


class Play(NamedTuple):
    """A play of E environments.

    Attributes:
      spec: of one of them.
      columns: the rows of each.
      seconds: what stepping and packing took, in one thread.
      message_bytes: length of a message with one step of all of them.
      metrics: names of the numbers in `info` where episodes ended.
    """

    spec: EnvSpec
    columns: list[list[Row]]
    seconds: float
    message_bytes: int
    metrics: tuple[str, ...]

    @property
    def num_steps(self) -> int:
        """Agent steps over all environments; the rows that start an episode are none."""
        return sum(row.step_type != StepType.FIRST for rows in self.columns for row in rows)

    @property
    def episodes(self) -> list[Episode]:
        """The episodes that ended."""
        return [episode for rows in self.columns for episode in episodes(rows)]


def check_back_end(
    build: Build, findings: Findings, *, seeds: list[int], num_steps: int
) -> Play | None:
    """Plays random actions in environments from `build`; adds what is wrong to `findings`.

    Args:
      build: makes as many environments as there are seeds.
      findings: where breaches go.
      seeds: the first is that of the actions too.
      num_steps: of each environment, in each play.

    Returns:
      The first play, or None if it could not be finished.

    Raises BuildError if `build` does.
    """
    try:
        with VectorPlayer(build, findings) as player:
            spec = player.spec()
        actions = action_rows(spec.action, num_steps, len(seeds), seeds[0])
        play = _play(build, spec, actions, findings, seeds=seeds)
        _check_repeat(build, play, actions, findings, seeds=seeds)
        other_seeds = [LARGEST_SEED - seed for seed in seeds]
        others = _play(build, spec, actions[:_SHORT_PLAY_STEPS], findings, seeds=other_seeds)
    except BrokenError:
        return None
    if not findings.has(rules.SEED_IGNORED) and _difference(play, others) is None:
        text = f"seeds {seeds} and {other_seeds} gave the same {len(others.columns[0])} rows"
        findings.add(rules.SEED_IGNORED, text)
    _check_episodes(play.episodes, num_steps, findings)
    _check_last_observations(play.columns, findings)
    return play


def check_against_single(alone: Alone, play: Play, findings: Findings, *, same_seeds: bool) -> None:
    """Compares environment 0 of `play` with the same environment when it was played alone.

    Args:
      same_seeds: whether the back end seeds an environment as if it were alone.
    """
    if differences := alone.spec.difference(play.spec):
        findings.add(rules.BACK_END_SPEC, "; ".join(differences))
    elif same_seeds and (difference := first_difference(alone.rows, play.columns[0])):
        text = f"environment 0 did not play as it does alone: {difference}"
        findings.add(rules.BACK_END_STEPS, text)


def _play(
    build: Build, spec: EnvSpec, actions: np.ndarray, findings: Findings, *, seeds: list[int]
) -> Play:
    with VectorPlayer(build, findings) as player:
        rows = [player.reset(seeds), *(player.step(row) for row in actions)]
        columns = [list(column) for column in zip(*rows, strict=True)]
        metrics = tuple(sorted(player.metrics))
        return Play(spec, columns, player.seconds, player.message_bytes, metrics)


def _check_repeat(
    build: Build, play: Play, actions: np.ndarray, findings: Findings, *, seeds: list[int]
) -> None:
    """Plays again, with other actions where they are to be ignored."""
    is_last = np.array(
        [[row.step_type == StepType.LAST for row in rows[:-1]] for rows in play.columns]
    ).T
    is_ignored = is_last.reshape(is_last.shape + (1,) * (actions.ndim - 2))
    changed = np.where(is_ignored, other_actions(play.spec.action, actions), actions)
    again = _play(build, play.spec, changed, findings, seeds=seeds)
    difference = _difference(play, again)
    if difference is None:
        return
    if chance := _difference(play, _play(build, play.spec, actions, findings, seeds=seeds)):
        text = f"the same seeds and actions did not play the same on the back end: {chance}"
        findings.add(rules.SEEDING, text)
    else:
        text = f"the action on a last observation changed what followed: {difference}"
        findings.add(rules.AUTORESET, text)


def _difference(play: Play, other: Play) -> str | None:
    for index, (rows, others) in enumerate(zip(play.columns, other.columns, strict=True)):
        if difference := first_difference(rows, others):
            return f"environment {index}, {difference}"
    return None


def _check_episodes(ended: list[Episode], num_steps: int, findings: Findings) -> None:
    if not ended:
        findings.add(rules.ENDLESS, f"no episode ended within {num_steps:,} steps")
        return
    lengths = {episode.length for episode in ended}
    is_alike = len(lengths) == 1 and all(episode.is_terminated for episode in ended)
    if is_alike and len(ended) >= _LEAST_EPISODES:
        text = f"all {len(ended)} episodes terminated after {ended[0].length} steps"
        findings.add(rules.SAME_LENGTH, text)


def _check_last_observations(columns: list[list[Row]], findings: Findings) -> None:
    pairs = [
        (row, after)
        for rows in columns
        for row, after in itertools.pairwise(rows)
        if row.step_type == StepType.LAST
    ]
    first_ones = {after.observation for _, after in pairs}
    others = {row.observation for rows in columns for row in rows} - first_ones
    is_same = all(row.observation == after.observation for row, after in pairs)
    if len(pairs) > 1 and is_same and others:
        text = f"the last observation of all {len(pairs)} episodes equals the first of the next"
        findings.add(rules.LAST_OBSERVATION, text)
