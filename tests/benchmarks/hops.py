"""Modules of ours that one observation passes: `python -m tests.benchmarks.hops`.

A deterministic learner, its programs compiled and its replay full enough, is watched for some
passes: each is as many rounds as a slot's page has steps, so that in each, from the moment an env
server's bytes arrive, an update follows from their contents and new parameters are published. Each
call of a Python function, in any thread but those that supervise, report or save, enters its
module. Only modules that every pass enters count: the others are entered by chance.
"""

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from learner.train import train
from seedrl import config_io
from seedrl.config import Config

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("seedrl", "envs_server", "learner", "configs")
# A round begins with a call of the first; the second takes an update.
_ROUND, _UPDATE = "Deterministic._run_once", "Learning._learn"
# Every slot completes a page in the rounds of a pass, and each round brings updates.
_SETTLED_UPDATES, _ROUNDS_OF_PASS, _PASSES = 5, 40, 10
# Threads that supervise, report or save.
_ASIDE = ("MainThread", "saver", "status")
_ENVS = 8


class Watch:
    """A profile function that records the modules that each pass enters.

    Called by all threads that it is set for; sets take what they add without a lock.
    """

    def __init__(self) -> None:
        self._modules: list[set[str]] = [set() for _ in range(_PASSES)]
        self._updates = 0
        self._rounds = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """See `sys.setprofile`."""
        if event != "call":
            return
        name = frame.f_code.co_qualname
        if name == _UPDATE:
            self._updates += 1
        elif name == _ROUND and self._updates >= _SETTLED_UPDATES:
            self._rounds += 1
        number = (self._rounds - 1) // _ROUNDS_OF_PASS
        module = str(frame.f_globals.get("__name__", ""))
        is_ours = module.partition(".")[0] in _PACKAGES
        if 0 <= number < _PASSES and is_ours and threading.current_thread().name not in _ASIDE:
            self._modules[number].add(module)

    @property
    def modules(self) -> list[str]:
        """Full names of the modules that every pass entered."""
        return sorted(set.intersection(*self._modules))


def configuration(address: str) -> Config:
    """CartPole, deterministic, with eight environments and an end after the watched passes."""
    config = config_io.load("cartpole_r2d2")
    return dataclasses.replace(
        config,
        environment=dataclasses.replace(config.environment, vectorization="sync"),
        serving=dataclasses.replace(
            config.serving, bind=address, training_slots=_ENVS, evaluation_slots=0
        ),
        replay=dataclasses.replace(config.replay, capacity_steps=4096, min_steps=640),
        learning=dataclasses.replace(
            config.learning, schedule="deterministic", num_devices=1, total_steps=640 + 600 * _ENVS
        ),
        evaluation=dataclasses.replace(config.evaluation, target_return=None),
        checkpoint=dataclasses.replace(config.checkpoint, replay=True),
    )


@contextlib.contextmanager
def _env_server(address: str) -> Iterator[None]:
    command = [sys.executable, "-m", "envs_server", "--learner", address]
    command += ["--num-envs", str(_ENVS), "--groups", "2"]
    process = subprocess.Popen(command, cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)})
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Trains for a moment in this process, and prints the modules and their number."""
    watch: Any = Watch()
    with tempfile.TemporaryDirectory(prefix="seedrl-hops-") as folder:
        address = f"unix:{folder}/socket"
        threading.setprofile(watch)
        try:
            with _env_server(address):
                train(configuration(address), workdir=Path(folder) / "run")
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]
    print(len(watch.modules), "modules", *watch.modules, sep="\n  ")


if __name__ == "__main__":
    main()
