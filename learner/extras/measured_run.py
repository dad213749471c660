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
_IGNORED = ("seed", *(f"serving.{name}" for name in OWN_SERVING))
_IGNORED_SECTIONS = ("logging.", "checkpoint.")


class Round(NamedTuple):
    """A round of evaluation."""

    # Training environment steps and time of the run when its parameters were made; when it ended if
    # that is not known.
    env_steps: float
    seconds: float
    mean_return: float
    episodes: int
    is_confirmation: bool  # played because the one before had reached the target


class MeasuredRun(NamedTuple):
    """What is known of a run."""

    record: RunRecord
    config: dict[str, Any]  # as saved: JSON, no class is imported
    rounds: tuple[Round, ...]  # oldest first, without those that a kill has lost
    final: float
    final_origin: str  # the episodes of the final score, in words
    is_fresh: bool  # these decided on nothing before (`seedrl evaluate --save`)
    seconds: float  # over all sessions

    @property
    def curve(self) -> list[Round]:
        """The rounds that were played because it was time: none was chosen for its score."""
        return [played for played in self.rounds if not played.is_confirmation] or [*self.rounds]

    @property
    def budget(self) -> int:
        return int(self.config["learning"]["total_steps"])

    def reached(self, threshold: float) -> Round | None:
        """The first round at or above a return; None without one."""
        # If the run itself had this target and asked for confirmation, only confirmations count.
        asked = self.config["evaluation"]
        confirms = asked.get("confirm_episodes") and asked.get("target_return") == threshold
        rounds = [each for each in self.rounds if each.is_confirmation or not confirms]
        return next((each for each in rounds if each.mean_return >= threshold), None)


class Group(NamedTuple):
    """Runs that differ only in their seed."""

    name: str  # of the configuration, with what tells it from others that are called the same
    runs: tuple[MeasuredRun, ...]  # by seed

    @property
    def task(self) -> str:
        """The environment that they play, with its wrappers."""
        environment = self.runs[0].config["environment"]
        return " + ".join([environment["id"], *environment.get("wrappers", ())])


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
    rounds, seconds = _rounds(folder / run_files.METRICS)
    if not rounds:
        raise ConfigError(
            f"{folder}: expected a round of evaluation in its {run_files.METRICS}, found none; "
            "train it on, or leave it out"
        )
    last, kept = rounds[-1], read_final_score(folder)
    origin = f"{'confirmation' if last.is_confirmation else 'last round'} of {last.episodes}"
    if kept is not None:
        origin = f"{kept.episodes} fresh {'greedy' if kept.greedy else 'exploring'}"
    return MeasuredRun(
        record=read_run(folder),
        config=config,
        rounds=rounds,
        final=last.mean_return if kept is None else kept.mean,
        final_origin=f"{origin} episodes",
        is_fresh=kept is not None,
        seconds=seconds,
    )


def _rounds(path: Path) -> tuple[tuple[Round, ...], float]:
    # The rounds that are part of the run, and the seconds that it took.
    played: list[dict[str, Any]] = []
    made, total = [(0.0, 0.0, 0.0)], 0.0  # updates, environment steps, seconds of intervals
    for line in (parsed(text) for texts in LineReader(path).rest() for text in texts):
        steps, seconds = _number(line, "env_steps"), _number(line, "elapsed_seconds")
        if steps is None or seconds is None:
            continue
        total = max(total, seconds)
        if line.get("kind") == "session":
            # What a session did not save, the next one lacks.
            played = [each for each in played if each["env_steps"] <= steps]
            made = [each for each in made if each[1] <= steps]
        elif line.get("kind") == "evaluation" and _number(line, "mean_return") is not None:
            played.append(line)
        elif line.get("kind") == "metrics" and (updates := _number(line, "updates")) is not None:
            made.append((updates, steps, seconds))
    return tuple(_dated(line, *zip(*made, strict=True)) for line in played), total


def _dated(
    line: dict[str, Any],
    updates: tuple[float, ...],
    env_steps: tuple[float, ...],
    seconds: tuple[float, ...],
) -> Round:
    # At the step at which its parameters were made. A round may end long after: its score at that
    # later step would make the curve wrong.
    at_step, at_second = float(line["env_steps"]), float(line["elapsed_seconds"])
    update = _number(line, "updates")
    if update is not None and update <= updates[-1]:
        at_step = min(at_step, float(np.interp(update, updates, env_steps)))
        at_second = min(at_second, float(np.interp(update, updates, seconds)))
    episodes = int(_number(line, "episodes") or 0)
    is_confirmation = bool(line.get("is_confirmation"))
    return Round(at_step, at_second, float(line["mean_return"]), episodes, is_confirmation)


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
    firsts = [same[0] for same in found.values()]
    return [
        Group(_name(same[0], firsts), tuple(sorted(same, key=lambda run: run.record.seed or 0)))
        for same in found.values()
    ]


def _name(run: MeasuredRun, firsts: Iterable[MeasuredRun]) -> str:
    alike = [_fields(each) for each in firsts if each.record.config == run.record.config]
    own = _fields(run)
    differing = [
        path
        for path in dict.fromkeys(path for fields in alike for path in fields)
        if len({json.dumps(fields.get(path)) for fields in alike}) > 1
    ]
    words = [f"{path}={_text(own.get(path, '(absent)'))}" for path in differing[:4]]
    return " ".join([run.record.config, *words, *["…"] * (len(differing) > 4)])


def _fields(run: MeasuredRun) -> dict[str, Any]:
    return {
        path: value
        for path, value in _leaves("", run.config)
        if path not in _IGNORED and not path.startswith(_IGNORED_SECTIONS)
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
