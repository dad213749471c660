"""Breakout and Pong against Sample Factory's asynchronous PPO: the return of games over time.

Each round is another seed: both learn for `--seconds`, at the same time, each on a core of its own
(a hyperthread counts as one). Frames, network, discount and clipping are equal, on Breakout also
entropy cost, minibatches and epochs; the rest of theirs is what Sample Factory's own example of
Atari does, but for the workers, of which there are two, and its asynchronous mode. On Breakout the
learning rate of each falls to 0 over the steps that it takes in that time, by its speed in a first
run of two minutes. Returns are means of the last 100 games in training, exploration included.
"""

import collections
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from learner.extras.bench.measuring import Pace, Result
from learner.extras.bench.workloads import ENDLESS
from tests.benchmarks.peers import sample_factory, virtual_environment

_FLAGS = (
    *sample_factory.FLAGS,
    "--num_envs_per_worker=8",
    *("--encoder_conv_architecture=convnet_atari", "--encoder_conv_mlp_layers", "256"),
)
_SPEED_SECONDS = 120.0
_PATIENCE_SECONDS = 300.0
_GAMES = 100  # of a mean return, as theirs
# torch is three times as slow on one core with two threads, or if memory is given back each time.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "1000000000",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
}


class Game(NamedTuple):
    """What is played, and what is reported of it."""

    name: str  # Sample Factory's environment is atari_NAME
    config: str  # ours
    metric: str  # of `metrics.jsonl`: the mean return of the games that ended
    lives: int  # episodes of a game
    interval_seconds: float  # between two reported returns
    target: float | None  # a return; the time until it is reported, too
    # Environment steps over which each learning rate falls to 0, ours and theirs; None: those that
    # are taken in the time.
    decay_steps: tuple[int, int] | None


BREAKOUT = Game("breakout", "breakout_ppo", "episode/game_return", 5, 300.0, None, None)
# Ours as configured; theirs hardly falls before it has learned.
PONG = Game("pong", "pong_ppo", "return/training", 1, 60.0, 18.0, (8_000_000, 10_000_000))


class _Point(NamedTuple):
    seconds: float  # since the start
    steps: int  # of environments
    mean_return: float | None  # None until a game has ended


def run(game: Game, pace: Pace, venvs: Path) -> Iterator[Result]:
    """The return at the end, and the seconds to the target, if there is one, of each seed."""
    interpreter = virtual_environment.python("sample_factory", venvs)
    sample_factory.copy_game(interpreter, game.name)
    both = functools.partial(_both, game, interpreter)
    ours, theirs = game.decay_steps or (
        int(_speed(points) * pace.seconds) for points in both(0, _SPEED_SECONDS, (ENDLESS, ENDLESS))
    )
    runs = [both(seed, pace.seconds, (ours, theirs)) for seed in range(pace.rounds)]
    conditions = {
        "cores": "one each, at the same time",
        "frames": "44 x 44",
        "steps until the learning rate is 0": f"{ours:,} (ours), {theirs:,} (theirs)",
    }
    yield Result(
        name=f"{game.name} after {pace.seconds / 60:g} minutes: mean return",
        unit="points",
        limit_name="Sample Factory APPO",
        ours=tuple(own[-1].mean_return or 0.0 for own, _ in runs),
        limits=tuple(peer[-1].mean_return or 0.0 for _, peer in runs),
        target=1.0,
        conditions=conditions,
        details=dict(
            item
            for seed, pair in enumerate(runs)
            for name, points in zip(("ours", "theirs"), pair, strict=True)
            for item in _details(f"{name}, seed {seed}", points, game.interval_seconds)
        ),
    )
    if game.target is not None:
        yield Result(
            name=f"{game.name}: seconds to a mean return of {game.target:g}",
            unit="s",
            limit_name="Sample Factory APPO",
            ours=tuple(_seconds_to(game.target, own, pace.seconds) for own, _ in runs),
            limits=tuple(_seconds_to(game.target, peer, pace.seconds) for _, peer in runs),
            target=1.0,
            is_cost=True,
            conditions=conditions,
        )


def _details(name: str, points: list[_Point], interval: float) -> Iterator[tuple[str, float]]:
    # The last point of each interval.
    last = {int(each.seconds // interval): each for each in points}
    for number, each in last.items():
        if each.mean_return is not None:
            place = f"{name}, {(number + 1) * interval / 60:g} minutes"
            yield f"{place}, return", each.mean_return
            yield f"{place}, steps", each.steps


def _seconds_to(target: float, points: list[_Point], seconds: float) -> float:
    """`seconds`, those of the whole run, if the target was not reached."""
    reached = (p.seconds for p in points if p.mean_return is not None and p.mean_return >= target)
    return next(reached, seconds)


def _speed(points: list[_Point]) -> float:
    """Environment steps per second, without the start."""
    first, *_, last = points
    return (last.steps - first.steps) / (last.seconds - first.seconds)


def _own(game: Game, lines: Iterable[dict[str, Any]]) -> list[_Point]:
    """Ours; the mean return of the last games is weighed by their number."""
    points, games, before = [], collections.deque[tuple[float, float]](), 0.0
    for line in lines:
        if "env_steps" not in line or game.metric not in line:
            continue  # others are of checkpoints, of the ledger, or without an end of a game
        episodes = line["episodes/training"]
        games.append((line[game.metric], (episodes - before) / game.lives))
        before = episodes
        while sum(number for _, number in games) - games[0][1] >= _GAMES:
            games.popleft()
        total = sum(number for _, number in games)
        mean = sum(value * number for value, number in games) / total
        points.append(_Point(line["elapsed_seconds"], int(line["env_steps"]), mean))
    return points


def _both(
    game: Game, interpreter: Path, seed: int, seconds: float, steps: tuple[int, int]
) -> tuple[list[_Point], list[_Point]]:
    """What ours and theirs reached over time. `steps`: until the learning rate of each is 0."""
    with tempfile.TemporaryDirectory(prefix=f"seedrl-{game.name}-") as name:
        folder = Path(name)
        output = folder / "theirs.jsonl"
        program = virtual_environment.PROGRAMS / "sample_factory_atari.py"
        flags = (
            *_FLAGS,
            f"--env=atari_{game.name}",
            f"--train_for_env_steps={steps[1]}",
            f"--seed={seed}",
        )
        ours = [sys.executable, "-m", "learner.cli.main", "train", game.config]
        ours += ["--seed", str(seed), "--evaluation.target-return", "None"]
        ours += ["--learning.max-seconds", str(seconds), "--workdir", str(folder / "ours")]
        ours += ["--learning.total-steps", str(steps[0])]
        ours += ["--agent.learning-rate-decay-steps", str(steps[0])]
        theirs = [str(interpreter), str(program), str(output), *flags, f"--train_dir={folder}"]
        cores = sorted(os.sched_getaffinity(0))
        with (
            _on_core(theirs, cores[-1], virtual_environment.variables() | _ENVIRONMENT),
            _on_core(ours, cores[0], dict(os.environ)) as process,
        ):
            started = time.monotonic()
            if code := process.wait(seconds + _PATIENCE_SECONDS):
                raise RuntimeError(f"{' '.join(ours)} ended with {code}")
            time.sleep(max(0.0, seconds - (time.monotonic() - started)))
        lines = map(json.loads, (folder / "ours" / "metrics.jsonl").read_text().splitlines())
        points = map(json.loads, output.read_text().splitlines())
        theirs_points = [_Point(each["seconds"], each["steps"], each["return"]) for each in points]
        return _own(game, lines), theirs_points


@contextlib.contextmanager
def _on_core(
    command: list[str], core: int, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process, with all that it starts, on that core alone; killed at the end."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=sys.stderr,
        start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    try:
        yield process
    finally:
        # Theirs leaves processes behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
