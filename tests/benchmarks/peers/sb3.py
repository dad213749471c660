"""Learning CartPole against Stable-Baselines3's DQN: seconds from process start to a score of 475.

Ours is `seedrl train cartpole_r2d2` as it is bundled, with programs that were compiled before;
theirs `programs/sb3_dqn.py`. Each round is another seed. Ours evaluates beside acting and learning,
so that evaluating takes some of its time; of theirs that time is left out.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from learner.bench.measure.interleave import Pace, interleave
from learner.bench.measure.result import Result, conditions
from learner.bench.rigs import workloads
from seedrl.config import Config
from seedrl.exit_codes import ExitCode
from tests.benchmarks.peers import virtual_environment

_DEADLINE_SECONDS = 600.0
# Enough for every program of a run to be compiled.
_WARM_UP_STEPS = 20_000


class Learned(NamedTuple):
    """Seconds from process start, and training steps, of one run.

    Attributes:
      first_seconds, first_steps: to parameters that scored 475 over 20 episodes.
      held_seconds, held_steps: to parameters that scored it again over 100 fresh ones. Of ours the
        seconds are those to the end of these 100, of theirs to the beginning.
    """

    first_seconds: float
    first_steps: int
    held_seconds: float
    held_steps: int


class _Figure(NamedTuple):
    """Which fields of `Learned` count, ours and theirs, in which unit, and the ratio to reach."""

    name: str
    unit: str
    ours: str
    theirs: str
    target: float | None


_FIGURES = (
    _Figure(
        "ours to a score that holds over 100, theirs to a first one",
        *("s", "held_seconds", "first_seconds", 1.0),
    ),
    _Figure("both to a first score", "s", "first_seconds", "first_seconds", None),
    _Figure("both to a score that holds over 100", "s", "held_seconds", "held_seconds", None),
    _Figure("training steps of both to a first score", "", "first_steps", "first_steps", None),
)


def run(pace: Pace, venvs: Path, *, first_seed: int = 0) -> Iterator[Result]:
    """A result for each of `_FIGURES`, all from the same runs."""
    interpreter = virtual_environment.python("sb3", venvs)
    workload = workloads.cartpole()
    _train(workload.config.seed, f"--learning.total-steps={_WARM_UP_STEPS}")
    runs: dict[str, list[Learned]] = {"ours": [], "theirs": []}

    def ours() -> float:
        runs["ours"].append(_ours(first_seed + len(runs["ours"]), workload.config))
        return runs["ours"][-1].first_seconds

    def theirs() -> float:
        runs["theirs"].append(_theirs(interpreter, first_seed + len(runs["theirs"])))
        return runs["theirs"][-1].first_seconds

    interleave({"ours": ours, "theirs": theirs}, pace.rounds)
    serving = workload.config.serving
    for figure in _FIGURES:
        yield Result(
            name=f"CartPole to 475: {figure.name}",
            unit=figure.unit,
            limit_name="Stable-Baselines3 DQN",
            ours=_values(runs["ours"], figure.ours),
            limits=_values(runs["theirs"], figure.theirs),
            target=figure.target,
            is_cost=True,
            conditions=conditions(
                workload.config,
                batch=f"{workload.config.learning.batch_sequences} sequences; theirs 64 steps",
                environments=f"{serving.training_slots} and {serving.evaluation_slots} for "
                "evaluation; theirs 1",
            ),
        )


def _values(runs: list[Learned], field: str) -> tuple[float, ...]:
    return tuple(getattr(each, field) for each in runs)


def learned(lines: Iterable[str], started: float, config: Config) -> Learned:
    """What a run's `metrics.jsonl` says, of a process started at that Unix time.

    Raises RuntimeError if no candidate held.
    """
    evaluation = config.evaluation
    rounds: list[dict[str, Any]] = [json.loads(line) for line in lines]
    reached = [
        each
        for each in rounds
        if each["kind"] == "evaluation" and each["mean_return"] >= (evaluation.target_return or 0)
    ]
    first = next((each for each in reached if not each["is_confirmation"]), None)
    held = next((each for each in reached if each["is_confirmation"]), None)
    if first is None or held is None:
        raise RuntimeError(f"expected a run that reaches {evaluation.target_return}, got none")
    return Learned(
        first["time_seconds"] - started,
        first["env_steps"],
        held["time_seconds"] - started,
        held["env_steps"],
    )


def _ours(seed: int, config: Config) -> Learned:
    started = time.time()
    return learned(_train(seed), started, config)


def _train(seed: int, *flags: str) -> list[str]:
    """The lines of `metrics.jsonl` of a run that ends by itself."""
    with tempfile.TemporaryDirectory(prefix="seedrl-peers-") as folder:
        workdir = Path(folder) / "run"
        command = [sys.executable, "-m", "learner.cli.main", "train", "cartpole_r2d2"]
        command += ["--seed", str(seed), "--workdir", str(workdir), *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_SECONDS)
        if done.returncode not in (ExitCode.OK, ExitCode.TARGET_MISSED):
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return (workdir / "metrics.jsonl").read_text().splitlines()


def _theirs(interpreter: Path, seed: int) -> Learned:
    program = virtual_environment.PROGRAMS / "sb3_dqn.py"
    command = [str(interpreter), str(program), str(seed), repr(time.time())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["held"] is None:
        raise RuntimeError(f"{' '.join(command)} did not reach 475 in its largest budget")
    return Learned(*answer["first"], *answer["held"])
