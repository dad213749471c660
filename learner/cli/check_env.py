"""`seedrl check-env ENVIRONMENT`: checks an environment against the contract.

The checker belongs to the env server, which the learner never imports: it is run as env servers
are, by this interpreter, with the current folder on its path.
"""

import os
import sys
from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Becomes the checker, whose exit code is then this process's."""
    os.execv(sys.executable, [sys.executable, "-m", "envs_server.check", *argv])
