"""What every peer's PPO program does with the commands of `ppo.py`, one folder up.

The first command describes the task. If its `mode` is `acting` or `learning`, `{"seconds": s}` is
answered with `{"rate": r}`, environment steps a second that are collected, or learned from too. If
it is `target`, `{"target": t, ...}` is answered with `{"lines": [...]}`: training to a mean return
of `t`, each line a round of evaluation, in environments of its own while collecting is paused, and
its time does not count.
"""

import contextlib
import time
from collections.abc import Callable
from statistics import fmean
from typing import Any, Protocol

from answering import commands

_FRESH_EPISODES = 100
Task = dict[str, Any]


class Training(Protocol):
    """A library's environments, networks and optimizer.

    Attributes:
      warm_up_steps: calls of `step` until it runs at its lasting pace.
    """

    warm_up_steps: int

    def step(self, *, learns: bool = True) -> int:
        """Takes a batch, and learns from it; its number of environment steps."""

    def play(self, episodes: int) -> list[float]:
        """The returns of `episodes` episodes that are played with the likeliest actions."""

    def paused(self) -> contextlib.AbstractContextManager[Any]:
        """While inside, nothing is collected."""


def _rate(training: Training, seconds: float, *, learns: bool) -> float:
    training.step(learns=learns)  # up to the end of a batch
    steps, elapsed, start = 0, 0.0, time.perf_counter()
    while elapsed < seconds:
        steps += training.step(learns=learns)
        elapsed = time.perf_counter() - start
    return steps / elapsed


def _train_to(training: Training, task: Task, command: dict[str, Any]) -> list[dict[str, Any]]:
    """Rounds of evaluation, up to one of fresh episodes that confirms the target."""
    lines: list[dict[str, Any]] = []
    steps, next_steps, excluded = 0, 0, 0.0

    def evaluate(episodes: int, elapsed: float, *, is_confirmation: bool) -> bool:
        mean = fmean(training.play(episodes))
        line = {"kind": "evaluation", "mean_return": mean, "is_confirmation": is_confirmation}
        lines.append({**line, "env_steps": steps, "elapsed_seconds": elapsed})
        return mean >= command["target"]

    while steps < command["most_steps"]:
        steps += training.step()
        if steps < next_steps:
            continue
        next_steps = steps + command["round_steps"]
        start = time.time()
        elapsed = start - task["started"] - excluded
        with training.paused():
            if evaluate(command["episodes"], elapsed, is_confirmation=False) and evaluate(
                _FRESH_EPISODES, elapsed, is_confirmation=True
            ):
                break
        excluded += time.time() - start
    return lines


def follow(make_training: Callable[[Task], Training]) -> None:
    """Makes the training of the first command, and answers all others."""
    lines = commands()
    task, answer = next(lines)
    training = make_training(task)
    learns = task["mode"] == "learning"
    if task["mode"] != "target":
        for _ in range(training.warm_up_steps):
            training.step(learns=learns)
    answer(ready=True)
    for command, answer in lines:
        if task["mode"] == "target":
            answer(lines=_train_to(training, task, command))
        else:
            answer(rate=_rate(training, command["seconds"], learns=learns))
