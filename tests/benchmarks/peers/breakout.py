"""Breakout against Sample Factory's asynchronous PPO: the return of whole games over time.

Each round is another seed: both learn for `--seconds`, at the same time, each on a core of its own
(a hyperthread counts as one). Frames, network, discount, clipping, entropy cost, minibatches and
epochs are equal; the rest of theirs is what Sample Factory's own example of Atari does, but for the
workers, of which there are two, and its asynchronous mode.
"""

import contextlib
import json
import math
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
from tests.benchmarks.peers import sample_factory, virtual_environment

_CONFIG = "breakout_ppo"
_FLAGS = (
    *("--algo=APPO", "--env=atari_breakout", "--async_rl=True", "--serial_mode=False"),
    *("--num_workers=2", "--num_envs_per_worker=8", "--worker_num_splits=2", "--device=cpu"),
    *("--encoder_conv_architecture=convnet_atari", "--encoder_conv_mlp_layers", "256"),
    *("--summaries_use_frameskip=False", "--decorrelate_experience_max_seconds=0"),
    "--experiment=peer",
)
_THEIR_STEPS_PER_SECOND = 280
_PATIENCE_SECONDS = 300.0
# Returns are means over so long. Theirs are of its last 100 games, which it always gives.
_INTERVAL_SECONDS = 300.0
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
    curves = []
    for seed in range(pace.rounds):
        with tempfile.TemporaryDirectory(prefix="seedrl-breakout-") as folder:
            curves.append(_both(interpreter, seed, pace.seconds, Path(folder)))
    ours, theirs = ([_mean(curve[side], pace.seconds) for curve in curves] for side in (0, 1))
    yield Result(
        name=f"Breakout after {pace.seconds / 60:g} minutes: return of a game",
        unit="points",
        limit_name="Sample Factory APPO",
        ours=tuple(ours),
        limits=tuple(theirs),
        target=1.0,
        conditions={"cores": "one each, at the same time", "frames": "42 x 42"},
        details={
            f"{name} after {end / 60:g} minutes, seed {seed}": _mean(curve, end)
            for seed, both in enumerate(curves)
            for name, curve in zip(("ours", "theirs"), both, strict=True)
            for end in np.arange(_INTERVAL_SECONDS, pace.seconds, _INTERVAL_SECONDS).tolist()
            if curve[0][0] <= end  # a game has ended
        },
    )


def _mean(curve: list[list[float]], end: float) -> float:
    end = min(end, curve[-1][0])  # a run that has taken all its steps keeps its last return
    return statistics.fmean(points for at, points in curve if end - _INTERVAL_SECONDS < at <= end)


def _both(
    interpreter: Path, seed: int, seconds: float, folder: Path
) -> tuple[list[list[float]], list[list[float]]]:
    """Points of seconds since the start, and the mean return of games; ours, then theirs."""
    output = folder / "theirs.jsonl"
    program = virtual_environment.PROGRAMS / "sample_factory_breakout.py"
    # Their learning rate falls to 0 over this many steps: somewhat more than they take.
    steps = int(_THEIR_STEPS_PER_SECOND * seconds)
    flags = (*_FLAGS, f"--train_for_env_steps={steps}", f"--seed={seed}", f"--train_dir={folder}")
    ours = [sys.executable, "-m", "learner.cli.main", "train", _CONFIG, "--seed", str(seed)]
    ours += ["--learning.max-seconds", str(seconds), "--workdir", str(folder / "ours")]
    theirs = [str(interpreter), str(program), str(output), *flags]
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
        [line["elapsed_seconds"], line["episode/game_return"]]
        for line in lines
        if not math.isnan(line.get("episode/game_return", math.nan))
    ]
    points = map(json.loads, output.read_text().splitlines())
    return own, [[each["seconds"], each["return"]] for each in points if each["return"] is not None]


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
