"""A learner that imports before it knows its command line: `python -m learner.early`.

The words of the command line come on stdin, as a JSON list; from then on it is `python -m learner`.
If stdin ends without them it ends, too: whoever started it has found them wrong.
"""

import importlib
import json
import sys

from learner.__main__ import main as learner_main
from seedrl.errors import ExitCode

# What every learner imports, and what most of their configs do. None of it starts a thread or looks
# at a device, so that the learner can still say how both are to behave.
_MODULES = ("learner.run", "learner.progress", "seedrl.agents.r2d2")


def main() -> int:
    """Runs a learner; returns its exit code (`seedrl.errors.ExitCode`)."""
    for module in _MODULES:
        importlib.import_module(module)
    words = sys.stdin.readline()
    return learner_main(json.loads(words)) if words else ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
