"""Modules and classes of ours that one observation passes: `python -m tests.benchmarks.hops`.

A learner in lock step, with its programs compiled and its replay full enough, is watched for some
passes: each is as many rounds as a slot's page has steps, so that in each, from the moment an env
server's bytes arrive, an update follows from what they hold, and the next parameters are published.
Each call of a Python function, in any thread of the learner but those that supervise, report or
save, is an entry into its module, and, if it is a method or makes an instance, into its class. What
the device computes has been traced before, and counts no more than by its call.

What counts was entered in every pass: what happens by chance is missing in some. What happens by
the clock is left out, for a slow machine would have it in every pass.

The lists say how far one has to read to follow an observation.
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
from types import CodeType, FrameType
from typing import Any, NamedTuple

from learner.train import train
from seedrl import config_io
from seedrl.config import Config

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("seedrl", "envs_server", "learner", "configs")
# A round begins with a call of the first; the second takes an update.
_ROUND, _UPDATE = "LockStep.run_once", "Learning._learn"
# Every slot completes a page in the rounds of a pass, and each round brings updates.
_SETTLED_UPDATES, _ROUNDS_OF_PASS, _PASSES = 5, 40, 10
# What this calls, it calls again and again by the clock: acting looks for environments that have
# gone.
_BY_CLOCK = ("Acting._poll",)
# Threads that supervise, report or save.
_ASIDE = ("saver", "status")
_ENVS = 8


class Hops(NamedTuple):
    """What was entered: full names of modules, and of classes with their modules, both sorted."""

    modules: list[str]
    classes: list[str]


class Watch:
    """A profile function that writes down what is entered in each pass.

    Called by all threads that it is set for; sets take what they add without a lock.
    """

    def __init__(self) -> None:
        self._modules: list[set[str]] = [set() for _ in range(_PASSES)]
        self._classes: list[set[str]] = [set() for _ in range(_PASSES)]
        self._updates = 0
        self._rounds = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """See `sys.setprofile`."""
        if event != "call":
            return
        code = frame.f_code
        if code.co_qualname == _UPDATE:
            self._updates += 1
        elif code.co_qualname == _ROUND and self._updates >= _SETTLED_UPDATES:
            self._rounds += 1
        number = (self._rounds - 1) // _ROUNDS_OF_PASS
        if not 0 <= number < _PASSES:
            return
        if not (_is_aside(threading.current_thread()) or _is_by_clock(frame)):
            self._enter(number, frame, code)

    def _enter(self, number: int, frame: FrameType, code: CodeType) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if _is_ours(module):
            self._modules[number].add(module)
        owner = _owner(frame, code)
        if owner is not None and _is_ours(owner.__module__):
            self._classes[number].add(f"{owner.__module__}.{owner.__qualname__}")

    @property
    def hops(self) -> Hops:
        """What was entered in every pass."""
        return Hops(
            sorted(set.intersection(*self._modules)), sorted(set.intersection(*self._classes))
        )


def _is_aside(thread: threading.Thread) -> bool:
    """Whether a thread only supervises, reports or saves."""
    return thread is threading.main_thread() or thread.name in _ASIDE


def _is_by_clock(frame: FrameType | None) -> bool:
    """Whether a call is, or comes from, one that the clock makes."""
    while frame is not None:
        if frame.f_code.co_qualname in _BY_CLOCK:
            return True
        frame = frame.f_back
    return False


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _PACKAGES


def _owner(frame: FrameType, code: CodeType) -> type | None:
    """The class whose method or constructor a call is; None for a function."""
    if not code.co_argcount or code.co_varnames[0] not in ("self", "cls", "_cls"):
        return None
    first = frame.f_locals.get(code.co_varnames[0])
    return first if isinstance(first, type) else type(first)


def configuration(address: str) -> Config:
    """CartPole in lock step, with eight environments and an end after the watched passes."""
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


def measure() -> Hops:
    """Trains for a moment in this process, and says what an observation entered."""
    watch: Any = Watch()
    with tempfile.TemporaryDirectory(prefix="seedrl-hops-") as folder:
        address = f"unix:{folder}/socket"
        threading.setprofile(watch)
        try:
            with _env_server(address):
                train(configuration(address), workdir=Path(folder) / "run")
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]
    hops: Hops = watch.hops
    return hops


def main() -> None:
    """Prints both lists and their lengths."""
    hops = measure()
    for name, found in hops._asdict().items():
        print(f"{len(found)} {name}")
        print("".join(f"  {entry}\n" for entry in found))


if __name__ == "__main__":
    main()
