"""PufferLib 3's PPO, in one process with its environments: see `ppo.py`.

Its fastest layout of those tried on two cores: without workers, which wait for their next step in a
loop that never sleeps. An environment that is reset takes a step of its own, which counts.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from learner.extras.bench.measuring import Pace, Result
from tests.benchmarks.peers import ppo, virtual_environment

_VERSION = "3.0.0"


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """Steps a second and seconds to the target."""
    _install(virtual_environment.python("pufferlib", venvs))
    yield from ppo.run("pufferlib", "PufferLib PPO", pace, venvs)


def _install(interpreter: Path) -> None:
    """Builds it from its sources, which is all that there is of it; this needs a C++ compiler."""
    (packages,) = (interpreter.parent.parent / "lib").glob("python*/site-packages")
    if any(packages.glob("pufferlib-*.dist-info")):
        return
    # Without its own environments, which need downloads from elsewhere. Its setup.py then reads a
    # name that it has not defined.
    name = packages / "pufferlib_setup.pth"
    name.write_text("import builtins; builtins.c_extension_paths = []\n")
    try:
        virtual_environment.install(
            interpreter,
            # Into the environment's torch, by which it is compiled.
            *("--no-deps", "--no-build-isolation", f"pufferlib=={_VERSION}"),
            NO_OCEAN="1",
            PATH=os.defpath,  # without nvcc, with which it would ask for CUDA
        )
    finally:
        name.unlink()
