"""A learner that imports before it knows its command line: `python -m learner.early`.

That comes on stdin, as JSON: `{"words": [...], "environment": {...}}`. From then on it is
`python -m learner` in that environment. If stdin ends without it, so does the process: whoever
started it has found it wrong.
"""

import importlib
import json
import os
import sys

from learner.cli.learner import PROG
from learner.cli.learner import main as learner_main
from learner.cli.outcome import exit_code
from seedrl.errors import ExitCode

# What every learner imports, and what most of their configs do. None of it starts a thread or looks
# at a device, so that the learner can still say how both are to behave.
_MODULES = ("learner.session.run", "learner.reporting.progress", "seedrl.agents.r2d2")


def main() -> int:
    """Runs a learner; returns its exit code (`seedrl.errors.ExitCode`)."""
    return exit_code(_run, prog=PROG)


def _run() -> int:
    at_first = set(os.environ)
    for module in _MODULES:
        importlib.import_module(module)
    line = sys.stdin.readline()
    if not line:
        return ExitCode.OK
    command = json.loads(line)
    words, environment = command["words"], command["environment"]
    # Not what imports have set here alone, but what the config sets: jax may have read it by now.
    if environment.items() - os.environ.items() or at_first - environment.keys():
        os.execve(sys.executable, [sys.executable, "-m", "learner", *words], environment)
    return learner_main(words)


if __name__ == "__main__":
    sys.exit(main())
