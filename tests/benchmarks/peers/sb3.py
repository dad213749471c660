"""Learning CartPole beside Stable-Baselines3: seconds from process start to a score of 475.

Ours are configs as they are bundled, with programs that were compiled before; theirs PPO and DQN as
in `programs/sb3_tasks.toml`. Each round is another seed, on which all of them are trained one after
the other. Ours evaluates beside acting and learning, so that evaluating takes some of its time; of
theirs that time is left out, except from the seconds of whole processes.
"""

import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from learner.extras.bench.measuring import Pace, Result, interleave
from seedrl import config_io
from tests.benchmarks.conditions import network_name
from tests.benchmarks.ended_runs import train
from tests.benchmarks.peers import virtual_environment
from tests.benchmarks.peers.virtual_environment import PROGRAMS

# Enough for every program of a run to be compiled.
_WARM_UP_STEPS = 20_000

_TARGET = 475.0
_BASE = "cartpole_r2d2"
_OURS = (_BASE, "cartpole_impala", "cartpole_ppo")
_THEIRS = {"Stable-Baselines3 DQN": "cartpole_dqn", "Stable-Baselines3 PPO": "cartpole_ppo"}


class Learned(NamedTuple):
    """Seconds from process start, and training steps, of one run.

    Attributes:
      first_seconds, first_steps: to parameters that scored 475 over 20 episodes.
      held_seconds, held_steps: to parameters that scored it again over 100 fresh ones. Of ours the
        seconds are those to the end of these 100, of theirs to the beginning.
      exit_seconds: to the end of the process, with all evaluation on both sides.
    """

    first_seconds: float
    first_steps: int
    held_seconds: float
    held_steps: int
    exit_seconds: float = 0.0


# Name, unit, and the fields of `Learned` that count, ours and the other's.
HELD = ("both to a score that holds over 100", "s", "held_seconds", "held_seconds")
WHOLE = ("whole processes, with evaluation", "s", "exit_seconds", "exit_seconds")
FIRST = ("both to a first score", "s", "first_seconds", "first_seconds")
STEPS = ("training steps of both to a first score", "", "first_steps", "first_steps")
_STRICT = (
    "ours to a score that holds over 100, theirs to a first one",
    *("s", "held_seconds", "first_seconds"),
)
# Ours, the other, the figure and the ratio to reach.
_COMPARISONS = (
    (_BASE, "Stable-Baselines3 DQN", _STRICT, 1.0),
    *((ours, _BASE, HELD, 0.8) for ours in _OURS if ours != _BASE),
    *(
        (ours, other, figure, None)
        for ours in _OURS
        for other in _THEIRS
        for figure in (WHOLE, HELD, FIRST, STEPS)
    ),
)


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """Trains all of them once a round; the results, all from the same runs."""
    interpreter = virtual_environment.python("sb3", venvs)
    theirs = {label: partial(_theirs, interpreter, task) for label, task in _THEIRS.items()}
    yield from compare(_OURS, theirs, _COMPARISONS, pace.rounds)


def compare(
    ours: Iterable[str],
    theirs: Mapping[str, Callable[[int], Learned]],
    comparisons: Iterable[tuple[str, str, tuple[str, str, str, str], float | None]],
    rounds: int,
) -> Iterator[Result]:
    """Trains our configs and theirs, functions of a seed, once a round; see `_COMPARISONS`."""
    trained: dict[str, Callable[[int], Learned]] = {name: partial(_ours, name) for name in ours}
    for name in trained:
        train(name, 0, f"--learning.total-steps={_WARM_UP_STEPS}")
    trained |= theirs
    runs: dict[str, list[Learned]] = {name: [] for name in trained}

    def measure(name: str) -> float:
        found = trained[name](len(runs[name]))
        # A run that is lost later need not take this one with it.
        print(name, len(runs[name]), found, file=sys.stderr, flush=True)
        runs[name].append(found)
        return found.held_seconds

    interleave({name: partial(measure, name) for name in trained}, rounds)
    for mine, other, (figure, unit, my_field, other_field), target in comparisons:
        config = config_io.load(mine)
        serving = config.serving
        yield Result(
            name=f"CartPole to 475, {mine} / {other}: {figure}",
            unit=unit,
            limit_name=other,
            ours=tuple(getattr(each, my_field) for each in runs[mine]),
            limits=tuple(getattr(each, other_field) for each in runs[other]),
            target=target,
            is_cost=True,
            conditions={
                "network": network_name(config.agent),
                "batch": f"{config.learning.batch_sequences} sequences",
                "environments": f"{serving.training_slots} and {serving.evaluation_slots} for "
                "evaluation",
            },
        )


def learned(
    lines: Iterable[Mapping[str, Any]], seconds: Callable[[Mapping[str, Any]], float]
) -> Learned:
    """What the metrics of a run say, up to the round that confirms its score.

    Args:
      lines: of `metrics.jsonl`, or what `sb3_learning.py` says; not read beyond that round.
      seconds: of a line, since the start of the process.

    Raises RuntimeError if no score was confirmed.
    """
    first = None
    for line in lines:
        if line["kind"] != "evaluation" or line["mean_return"] < _TARGET:
            continue
        if not line["is_confirmation"]:
            first = first or line
        elif first is not None:
            return Learned(seconds(first), first["env_steps"], seconds(line), line["env_steps"])
    raise RuntimeError(f"expected a run whose score of {_TARGET:g} is confirmed, got none")


def _ours(name: str, seed: int) -> Learned:
    started = time.time()
    lines = train(name, seed)
    exit_seconds = time.time() - started
    found = learned(lines, lambda line: float(line["time_seconds"]) - started)
    return found._replace(exit_seconds=exit_seconds)


def _theirs(interpreter: Path, name: str, seed: int) -> Learned:
    task = tomllib.loads((PROGRAMS / "sb3_tasks.toml").read_text())[name]
    plan = {**task, "seed": seed, "started": time.time()}
    command: list[str | Path] = [
        interpreter.absolute(),
        PROGRAMS / "sb3_learning.py",
        json.dumps(plan),
    ]
    environment = virtual_environment.variables()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = map(json.loads, process.stdout)
        found = learned(lines, lambda line: float(line["elapsed_seconds"]))
    return found._replace(exit_seconds=time.time() - plan["started"])
