"""How a run went, in numbers and in words."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from learner.report.panel import binding, duration, evaluation_text, score
from learner.report.status import EvaluationStatus


class Summary(NamedTuple):
    """How a training run went.

    Attributes:
      reason: why it ended, in words.
      last, best: rounds of evaluation of the run; None if there was none.
      env_steps: training environment steps, over all sessions of the run.
      total_steps: `learning.total_steps`.
      wall_seconds: of this session, from the start of the learner.
      updates: applied updates.
      workdir: the run folder.
      confirmed_updates: of the parameters that have reached the target return and confirmed it;
        None if none have.
      target_return: the configured one, or None.
      metrics: the last value of each.
      best_return, best_updates: of the best checkpoint; None and 0 if there is none.
      command: the command line of the user.
      to_allow: code that the run's configuration names and that is not installed, for `--allow`.
    """

    reason: str
    last: EvaluationStatus | None
    best: EvaluationStatus | None
    env_steps: int
    total_steps: int
    wall_seconds: float
    updates: int
    workdir: Path
    confirmed_updates: int | None
    target_return: float | None
    metrics: Mapping[str, float]
    best_return: float | None = None
    best_updates: int = 0
    command: str = ""
    to_allow: tuple[str, ...] = ()

    @property
    def has_missed(self) -> bool:
        """True if all steps were taken without a confirmed target."""
        all_taken = self.env_steps >= self.total_steps
        return self.target_return is not None and self.confirmed_updates is None and all_taken


def summary_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    """Label and text of each line, with the commands to continue with last."""
    missed = " (exit code 1: all steps were taken, and the target was not confirmed)"
    yield "ended", summary.reason + missed * summary.has_missed
    yield "last evaluation", evaluation_text(summary.last)
    if summary.best != summary.last:
        yield "best evaluation", evaluation_text(summary.best)
    metrics = summary.metrics
    rate = f"{metrics.get('env_steps_per_second', 0.0):,.0f}/s in the last interval"
    yield "environment steps", f"{summary.env_steps:,} of {summary.total_steps:,}, {rate}"
    yield "updates", _updates(summary)
    if text := binding(metrics):
        yield "balance", text
    run_seconds = metrics.get("elapsed_seconds", 0.0)
    is_resumed = run_seconds - summary.wall_seconds > 1.0
    whole = f", {duration(run_seconds)} with earlier sessions" * is_resumed
    yield "wall time", duration(summary.wall_seconds) + whole
    folder = shlex.quote(str(summary.workdir))
    yield "run folder", folder
    allow = f" {shlex.join(['--allow', *summary.to_allow])}" if summary.to_allow else ""
    yield "evaluate it", f"seedrl evaluate {folder}{allow}"
    if summary.best_return is not None:
        text = f"{score(summary.best_return)} after {summary.best_updates:,} updates"
        yield "best checkpoint", f"{text}: seedrl evaluate {folder} --best{allow}"
    yield "resume it", resume_command(summary)


def _updates(summary: Summary) -> str:
    if not summary.updates:
        # Untrained parameters may have reached the target.
        hint = ". hint: see the warnings above and replay.min_steps"
        return f"none{hint * (summary.confirmed_updates is None)}"
    lag = f"{summary.metrics.get('policy_lag_updates', 0.0):.1f} updates of policy lag"
    ratio = summary.metrics.get("replay_ratio", 0.0)  # an on-policy queue has none
    return f"{summary.updates:,}, {f'replay ratio {ratio:.2f}, ' * (ratio > 0)}{lag}"


def resume_command(summary: Summary) -> str:
    """The user's command, with the run's folder, and more steps if all were taken.

    A confirmed target is left out: it would end the run at once.
    """
    words = resuming(summary.command, summary.workdir)
    if summary.env_steps >= summary.total_steps:
        words = _without(words, ["--learning.total-steps"])
        words += ["--learning.total-steps", str(2 * summary.total_steps)]
    if summary.confirmed_updates is not None:
        words = _without(words, ["--evaluation.target-return"])
        words += ["--evaluation.target-return", "None"]
    return shlex.join(words)


def resuming(command: str, workdir: Path) -> list[str]:
    """The words of the user's command for the same run: with its folder, from its checkpoint."""
    words = _without(shlex.split(command), ["--workdir", "--resume", "--init-from"])
    return [*words, "--workdir", str(workdir)]


def _without(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The words of a command line without these flags, and without their values."""
    kept: list[str] = []
    is_value = False
    for word in words:
        name, equals, _ = word.replace("_", "-").partition("=")
        if is_value:
            is_value = False
        elif name in flags:
            is_value = not equals
        else:
            kept.append(word)
    return kept
