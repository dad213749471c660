"""`seedrl check-env-server --command COMMAND`: checks an env server against the wire's contract.

The checker plays the learner, but needs nothing of it: like `check-env` it is run by this
interpreter, beside the env servers.
"""

import os
import sys
from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Becomes the checker, whose exit code is then this process's."""
    os.execv(sys.executable, [sys.executable, "-m", "envs_server.check.server", *argv])
