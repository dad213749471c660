"""Breakout against Sample Factory's asynchronous PPO: the return of whole games over time.

Each round is another seed: both learn for `--seconds`, at the same time, each on a core of its own
(a hyperthread counts as one). Frames, network, discount, clipping, entropy cost, minibatches and
epochs are equal; the rest of theirs is what Sample Factory's own example of Atari does, but for the
workers, of which there are two, and its asynchronous mode. The learning rate of each falls to 0
over the steps that it takes in that time, by its speed in a first run of two minutes.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from learner.extras.bench.measuring import Pace, Result
from learner.extras.bench.workloads import ENDLESS
from tests.benchmarks.peers import sample_factory, virtual_environment

_CONFIG = "breakout_ppo"
_FLAGS = (
    *("--algo=APPO", "--env=atari_breakout", "--async_rl=True", "--serial_mode=False"),
    *("--num_workers=2", "--num_envs_per_worker=8", "--worker_num_splits=2", "--device=cpu"),
    *("--encoder_conv_architecture=convnet_atari", "--encoder_conv_mlp_layers", "256"),
    *("--summaries_use_frameskip=False", "--decorrelate_experience_max_seconds=0"),
    "--experiment=peer",
)
_SPEED_SECONDS = 120.0
_PATIENCE_SECONDS = 300.0
# Returns are means over so long. Theirs are of its last 100 games, which it always gives.
_INTERVAL_SECONDS = 300.0
# Seconds since the start, environment steps, mean return of games if one has ended.
_Point = tuple[float, int, float | None]
# torch is three times as slow on one core with two threads, or if memory is given back each time.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "1000000000",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
}


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """The mean return of whole games, exploration included, of the last minutes of each seed."""
    interpreter = virtual_environment.python("sample_factory", venvs)
    sample_factory.copy_game(interpreter, "breakout")
    first = _both(interpreter, 0, _SPEED_SECONDS, (ENDLESS, ENDLESS))
    ours, theirs = (int(_speed(points) * pace.seconds) for points in first)
    runs = [_both(interpreter, seed, pace.seconds, (ours, theirs)) for seed in range(pace.rounds)]
    curves = [
        [[(at, points) for at, _, points in side if points is not None] for side in both]
        for both in runs
    ]
    yield Result(
        name=f"Breakout after {pace.seconds / 60:g} minutes: return of a game",
        unit="points",
        limit_name="Sample Factory APPO",
        ours=tuple(_mean(own, pace.seconds) for own, _ in curves),
        limits=tuple(_mean(peer, pace.seconds) for _, peer in curves),
        target=1.0,
        conditions={
            "cores": "one each, at the same time",
            "frames": "44 x 44",
            "steps until the learning rate is 0": f"{ours:,} (ours), {theirs:,} (theirs)",
        },
        details={
            f"{name} after {end / 60:g} minutes, seed {seed}": _mean(curve, end)
            for seed, both in enumerate(curves)
            for name, curve in zip(("ours", "theirs"), both, strict=True)
            for end in np.arange(_INTERVAL_SECONDS, pace.seconds, _INTERVAL_SECONDS).tolist()
            if curve[0][0] <= end  # a game has ended
        },
    )


def _speed(points: list[_Point]) -> float:
    """Environment steps per second, without the start."""
    (start, before, _), *_, (end, after, _) = points
    return (after - before) / (end - start)


def _mean(curve: list[tuple[float, float]], end: float) -> float:
    end = min(end, curve[-1][0])  # a run that has taken all its steps keeps its last return
    return statistics.fmean(points for at, points in curve if end - _INTERVAL_SECONDS < at <= end)


def _both(
    interpreter: Path, seed: int, seconds: float, steps: tuple[int, int]
) -> tuple[list[_Point], list[_Point]]:
    """Ours, then theirs; the learning rate falls to 0 over so many `steps` of each."""
    with tempfile.TemporaryDirectory(prefix="seedrl-breakout-") as name:
        folder = Path(name)
        output = folder / "theirs.jsonl"
        program = virtual_environment.PROGRAMS / "sample_factory_breakout.py"
        flags = (*_FLAGS, f"--train_for_env_steps={steps[1]}", f"--seed={seed}")
        ours = [sys.executable, "-m", "learner.cli.main", "train", _CONFIG, "--seed", str(seed)]
        ours += ["--learning.max-seconds", str(seconds), "--workdir", str(folder / "ours")]
        ours += ["--learning.total-steps", str(steps[0])]
        ours += ["--agent.learning-rate-decay-steps", str(steps[0])]
        theirs = [str(interpreter), str(program), str(output), *flags, f"--train_dir={folder}"]
        environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
        cores = sorted(os.sched_getaffinity(0))
        with (
            _on_core(theirs, cores[-1], environment | _ENVIRONMENT),
            _on_core(ours, cores[0], dict(os.environ)) as process,
        ):
            started = time.monotonic()
            if code := process.wait(seconds + _PATIENCE_SECONDS):
                raise RuntimeError(f"{' '.join(ours)} ended with {code}")
            time.sleep(max(0.0, seconds - (time.monotonic() - started)))
        lines = map(json.loads, (folder / "ours" / "metrics.jsonl").read_text().splitlines())
        own = [
            (line["elapsed_seconds"], line["env_steps"], line.get("episode/game_return"))
            for line in lines
            if "env_steps" in line  # others are of checkpoints and of the ledger
        ]
        points = map(json.loads, output.read_text().splitlines())
        return own, [(each["seconds"], each["steps"], each["return"]) for each in points]


@contextlib.contextmanager
def _on_core(
    command: list[str], core: int, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process, with all that it starts, on that core alone; killed at the end."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})  # what is started from here has it, too
    try:
        process = subprocess.Popen(
            command, env=environment, stdout=sys.stderr, start_new_session=True
        )
    finally:
        os.sched_setaffinity(0, allowed)
    try:
        yield process
    finally:
        # Theirs leaves processes behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
