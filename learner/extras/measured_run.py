"""A run as evidence, from its folder alone: its learning curve and its final score.

The folder may be anybody's: only regular files are read, and wrong lines are left out.
"""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from learner.checkpoints.run_records import RunRecord, read_final_score, read_run
from learner.report.json_lines import LineReader, parsed
from seedrl import run_files
from seedrl.config import OWN_SERVING
from seedrl.errors import ConfigError
from seedrl.run_files import read_regular

# What does not change how a run learns, or must differ between its runs.
_IGNORED = ("seed", *(f"serving.{name}" for name in OWN_SERVING), "logging.", "checkpoint.")
_MOST_NAMED = 4
_ABSENT = "(absent)"


class Round(NamedTuple):
    """A round of evaluation.

    Attributes:
      env_steps, seconds: training environment steps and time of the run when its parameters were
        made; when it ended if that is not known.
      mean_return: of its episodes.
      episodes: how many.
      is_confirmation: whether it was played because the one before had reached the target.
    """

    env_steps: float
    seconds: float
    mean_return: float
    episodes: int
    is_confirmation: bool


class MeasuredRun(NamedTuple):
    """What is known of a run.

    Attributes:
      record: its folder, configuration, seed, state and steps.
      config: its configuration, as saved: JSON, no class is imported.
      rounds: the rounds that are part of it, oldest first: not those that a kill has lost.
      final: its final score.
      final_origin: the episodes of the final score, in words.
      is_fresh: whether these decided on nothing before (`seedrl evaluate --save`).
      seconds: time of the run, over all sessions.
    """

    record: RunRecord
    config: dict[str, Any]
    rounds: tuple[Round, ...]
    final: float
    final_origin: str
    is_fresh: bool
    seconds: float

    @property
    def curve(self) -> list[Round]:
        """The rounds that were played because it was time: none was chosen for its score."""
        return [played for played in self.rounds if not played.is_confirmation] or [*self.rounds]

    @property
    def budget(self) -> int:
        """How many environment steps it may take."""
        return int(self.config["learning"]["total_steps"])

    @property
    def task(self) -> str:
        """The environment that it plays, with its wrappers."""
        environment = self.config["environment"]
        return " + ".join([environment["id"], *environment.get("wrappers", ())])

    def reached(self, threshold: float) -> Round | None:
        """The first round at or above a return; None without one.

        If the run itself had this target and asked for confirmation, only confirmations count.
        """
        asked = self.config["evaluation"]
        confirms = asked.get("confirm_episodes") and asked.get("target_return") == threshold
        rounds = [each for each in self.rounds if each.is_confirmation or not confirms]
        return next((each for each in rounds if each.mean_return >= threshold), None)


class Group(NamedTuple):
    """Runs that differ only in their seed.

    Attributes:
      name: of the configuration, with what tells it from others that are called the same.
      runs: by seed.
    """

    name: str
    runs: tuple[MeasuredRun, ...]

    @property
    def task(self) -> str:
        """What they play."""
        return self.runs[0].task


def measure(folder: Path) -> MeasuredRun:
    """Reads the folder of a run. Raises ConfigError if it shows no score, or is not readable."""
    try:
        config = json.loads(read_regular(folder / run_files.CONFIG))["config"]
        int(config["learning"]["total_steps"]), str(config["environment"]["id"])
        dict(config["evaluation"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f"expected the folder of a run with its {run_files.CONFIG}, got {folder}, whose run "
            "has not begun to train; leave it out"
        ) from None
    metrics = _Metrics()
    for lines in LineReader(folder / run_files.METRICS).rest():
        for line in lines:
            metrics.add(parsed(line))
    rounds = tuple(metrics.dated(line) for line in metrics.rounds)
    if not rounds:
        raise ConfigError(
            f"{folder}: expected a round of evaluation in its {run_files.METRICS}, found none; "
            "train it on, or leave it out"
        )
    last, kept = rounds[-1], read_final_score(folder)
    final = last.mean_return if kept is None else kept.mean
    origin = f"{'confirmation' if last.is_confirmation else 'last round'} of {last.episodes}"
    if kept is not None:
        origin = f"{kept.episodes} fresh {'greedy' if kept.greedy else 'exploring'}"
    return MeasuredRun(
        record=read_run(folder),
        config=config,
        rounds=rounds,
        final=final,
        final_origin=f"{origin} episodes",
        is_fresh=kept is not None,
        seconds=metrics.seconds,
    )


class _Metrics:
    """The lines of a run's metrics that are part of it."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, Any]] = []
        self.seconds = 0.0
        self._intervals = [(0.0, 0.0, 0.0)]  # updates, environment steps, seconds

    def add(self, line: dict[str, Any]) -> None:
        steps, seconds = _number(line, "env_steps"), _number(line, "elapsed_seconds")
        if steps is None or seconds is None:
            return
        self.seconds = max(self.seconds, seconds)
        if line.get("kind") == "session":
            # What a session did not save, the next one lacks.
            self.rounds = [each for each in self.rounds if each["env_steps"] <= steps]
            self._intervals = [each for each in self._intervals if each[1] <= steps]
        elif line.get("kind") == "evaluation" and _number(line, "mean_return") is not None:
            self.rounds.append(line)
        elif line.get("kind") == "metrics" and (updates := _number(line, "updates")) is not None:
            self._intervals.append((updates, steps, seconds))

    def dated(self, line: dict[str, Any]) -> Round:
        """The round at the step at which its parameters were made.

        A round may end long after: its score at that later step would make the curve wrong.
        """
        steps, seconds = float(line["env_steps"]), float(line["elapsed_seconds"])
        updates, (at, of_steps, of_seconds) = (
            _number(line, "updates"),
            zip(*self._intervals, strict=True),
        )
        if updates is not None and updates <= at[-1]:
            steps = min(steps, float(np.interp(updates, at, of_steps)))
            seconds = min(seconds, float(np.interp(updates, at, of_seconds)))
        episodes = int(_number(line, "episodes") or 0)
        mean_return = float(line["mean_return"])
        return Round(steps, seconds, mean_return, episodes, bool(line.get("is_confirmation")))


def _number(line: dict[str, Any], name: str) -> float | None:
    value = line.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def group(runs: Iterable[MeasuredRun]) -> list[Group]:
    """Groups runs, in the order in which their first ones come."""
    found: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        found.setdefault(json.dumps(_fields(run), sort_keys=True), []).append(run)
    members = list(found.values())
    return [
        Group(_name(same[0], members), tuple(sorted(same, key=lambda run: run.record.seed or 0)))
        for same in members
    ]


def _name(run: MeasuredRun, groups: Iterable[list[MeasuredRun]]) -> str:
    firsts = [same[0] for same in groups]
    alike = [_fields(each) for each in firsts if each.record.config == run.record.config]
    own = _fields(run)
    differing = [
        path
        for path in dict.fromkeys(path for fields in alike for path in fields)
        if len({json.dumps(fields.get(path, _ABSENT)) for fields in alike}) > 1
    ]
    words = [f"{path}={_text(own.get(path, _ABSENT))}" for path in differing[:_MOST_NAMED]]
    more = [f"and {len(differing) - _MOST_NAMED} more"] * (len(differing) > _MOST_NAMED)
    return " ".join([run.record.config, *words, *more])


def _fields(run: MeasuredRun) -> dict[str, Any]:
    return {
        path: value
        for path, value in _leaves("", run.config)
        if not any(path == name or (name[-1] == "." and path.startswith(name)) for name in _IGNORED)
    }


def _leaves(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(tree, dict):
        yield path, tree
        return
    for name, item in tree.items():
        yield from _leaves(f"{path}.{name}" if path else name, item)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
