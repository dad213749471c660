"""A run as evidence: its learning curve, its final score, and what it took."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from learner.reporting.json_lines import parsed, whole_lines
from learner.saving.run_records import RunRecord, read_final_score, read_run
from seedrl import run_files
from seedrl.errors import ConfigError
from seedrl.run_files import open_regular


class Round(NamedTuple):
    """A round of evaluation in training.

    Attributes:
      env_steps: training environment steps when it ended.
      seconds: time of the run by then, over all sessions, what was lost with a kill included.
      mean_return: of its episodes.
      episodes: how many.
      is_confirmation: whether it was played because the one before had reached the target.
    """

    env_steps: int
    seconds: float
    mean_return: float
    episodes: int
    is_confirmation: bool


class FinalScoreOf(NamedTuple):
    """What stands for a run where runs are compared.

    Attributes:
      mean: of the returns.
      origin: what was played, in words.
      is_fresh: whether it has decided on nothing before (`seedrl evaluate --save`).
    """

    mean: float
    origin: str
    is_fresh: bool


class Pace(NamedTuple):
    """Of the intervals of a run, the median; None where it was not measured."""

    env_steps_per_second: float | None
    replay_ratio: float | None
    policy_lag_updates: float | None


class MeasuredRun(NamedTuple):
    """What is known of a run.

    Attributes:
      record: its folder, configuration, seed, state and steps.
      config: its configuration, as saved: JSON, no class is imported.
      command: what its first session was started with.
      machine: what it learned on, and the commit, in words, as far as that was recorded.
      rounds: those that are part of it, oldest first: not what was lost with a kill.
      final: its final score.
      seconds: time of the run, over all sessions.
      pace: how fast it was, and how acting and learning kept pace.
    """

    record: RunRecord
    config: dict[str, Any]
    command: str
    machine: str
    rounds: tuple[Round, ...]
    final: FinalScoreOf
    seconds: float
    pace: Pace

    @property
    def curve(self) -> list[Round]:
        """The rounds that were played because it was time: none was chosen for its score."""
        return [played for played in self.rounds if not played.is_confirmation] or [*self.rounds]

    @property
    def budget(self) -> int:
        """How many environment steps it may take."""
        return int(self.config["learning"]["total_steps"])

    def reached(self, threshold: float) -> Round | None:
        """The round that shows that the return was reached; None if none does.

        That is the first one at or above it, and where the run itself had this target and asked for
        confirmation, the first one that confirms it.
        """
        asked = self.config["evaluation"]
        confirms = asked.get("confirm_episodes") and asked.get("target_return") == threshold
        rounds = [each for each in self.rounds if each.is_confirmation or not confirms]
        return next((each for each in rounds if each.mean_return >= threshold), None)


# Months of a run.
_MOST_LINES = 1_000_000
_LARGEST_OBJECT_BYTES = 2**24
_NEEDED = (
    *("kind", "env_steps", "elapsed_seconds", "mean_return", "episodes", "is_confirmation"),
    *Pace._fields,
)


def measure(folder: Path) -> MeasuredRun:
    """Reads the folder of a run. Raises ConfigError if it shows no score."""
    config = _json(folder / run_files.CONFIG).get("config")
    if not isinstance(config, dict):
        raise ConfigError(
            f"expected the folder of a run with its {run_files.CONFIG}, got {folder}, whose run "
            "has not begun to train; leave it out"
        )
    lines = _kept(folder / run_files.METRICS)
    rounds = tuple(_round(line) for line in lines if line["kind"] == "evaluation")
    if not rounds:
        raise ConfigError(
            f"{folder}: expected a round of evaluation in its {run_files.METRICS}, found none; "
            "train it on, or leave it out"
        )
    return MeasuredRun(
        record=read_run(folder),
        config=config,
        command=_first_line(folder / run_files.COMMANDS),
        machine=", ".join(filter(None, [_devices(folder / run_files.EVENTS), _recorded(folder)])),
        rounds=rounds,
        final=_final(folder, rounds),
        seconds=float(lines[-1]["elapsed_seconds"]),
        pace=_pace([line for line in lines if line["kind"] == "metrics"]),
    )


def _kept(metrics: Path) -> list[dict[str, Any]]:
    """The lines that are part of the run: what a session did not save, the next one lacks."""
    kept: list[dict[str, Any]] = []
    for line in _objects(metrics):
        if line.get("kind") == "session":
            kept = [each for each in kept if each["env_steps"] <= line["env_steps"]]
        elif line.get("kind") in ("evaluation", "metrics") and "env_steps" in line:
            # A line has some hundred numbers, and the file may be large: only what is needed.
            kept.append({name: line[name] for name in _NEEDED if name in line})
            if len(kept) > _MOST_LINES:
                raise ConfigError(
                    f"{metrics}: expected at most {_MOST_LINES:,} intervals and rounds; leave the "
                    "run out, or raise logging.interval_seconds in the next one"
                )
    return kept


def _round(line: dict[str, Any]) -> Round:
    return Round(
        env_steps=int(line["env_steps"]),
        seconds=float(line["elapsed_seconds"]),
        mean_return=float(line["mean_return"]),
        episodes=int(line["episodes"]),
        is_confirmation=bool(line.get("is_confirmation")),
    )


def _final(folder: Path, rounds: tuple[Round, ...]) -> FinalScoreOf:
    if (kept := read_final_score(folder)) is not None:
        how = "greedy" if kept.greedy else "exploring"
        return FinalScoreOf(kept.mean, f"{kept.episodes} fresh {how} episodes", True)
    last = rounds[-1]
    what = "confirmation" if last.is_confirmation else "last round"
    return FinalScoreOf(last.mean_return, f"{what} of {last.episodes} episodes", False)


def _pace(intervals: list[dict[str, Any]]) -> Pace:
    found = []
    for name in Pace._fields:
        values = [line[name] for line in intervals if isinstance(line.get(name), int | float)]
        found.append(median(values) if values else None)
    return Pace(*found)


def _devices(events: Path) -> str:
    for line in _objects(events):
        if line.get("kind") == "started":
            return str(line.get("fields", {}).get("devices", ""))
    return ""


def _recorded(folder: Path) -> str:
    """What the experiment that the run is part of says of its machine."""
    machines = _json(folder.parent / run_files.EXPERIMENT).get("machines", [])
    return "; ".join(map(str, machines))


def _first_line(path: Path) -> str:
    try:
        return path.read_text().partition("\n")[0]
    except OSError:
        return ""


def _json(path: Path) -> dict[str, Any]:
    return next(_objects(path, whole=True), {})


def _objects(path: Path, *, whole: bool = False) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line or `whole`; damaged and missing ones are skipped."""
    with contextlib.suppress(OSError), open_regular(path) as file:
        for text in [file.read(_LARGEST_OBJECT_BYTES)] if whole else whole_lines(file):
            if value := parsed(text):
                yield value
