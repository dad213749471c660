"""Runs pytest again and again in one tree: jax and the like are imported once, each run is a fork.

    python -m tests.mutation.forker

A line of stdin is a request, in JSON: pytest's arguments, and the file for its output. Two lines of
stdout answer: the run's process, which leads a group of its own, and its exit code at its end.
"""

import json
import os
import sys

# The settings under which jax is imported.
import tests.conftest  # noqa: F401  # isort: skip

import chex  # noqa: F401
import flax.linen  # noqa: F401
import grpc  # noqa: F401
import gymnasium.vector  # noqa: F401
import hypothesis  # noqa: F401
import optax  # noqa: F401
import pytest
import rich.console  # noqa: F401
import tensorboardX  # noqa: F401
from jax._src import xla_bridge

_OWN = ("configs", "envs_server", "learner", "seedrl", "tests")


def main() -> None:
    """Serves requests until stdin ends."""
    assert not xla_bridge.backends_are_initialized()
    # A run imports the modules of the tree itself: one of them has a bug.
    for name in [name for name in sys.modules if name.partition(".")[0] in _OWN]:
        del sys.modules[name]
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        arguments, output = json.loads(line)
        if (pid := os.fork()) == 0:
            answers.close()
            os.setsid()
            with open(output, "wb") as file, open(os.devnull, "rb") as nothing:
                for number, own in enumerate((nothing, file, file)):
                    os.dup2(own.fileno(), number)
            sys.exit(pytest.main(arguments))
        print(pid, file=answers, flush=True)
        status = os.waitpid(pid, 0)[1]
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    main()
