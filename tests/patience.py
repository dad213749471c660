"""How long tests wait for what must happen: so long that only a hang misses it.

A test waits for an event and never for a time: a slow or busy machine makes it longer, and not red.
"""

import os
import time
from collections.abc import Callable

# Mutants are tried with less: there a hang is what is looked for.
SECONDS = float(os.environ.get("SEEDRL_PATIENCE_SECONDS", "300"))


def wait_until(
    condition: Callable[[], object], what: str = "", *, pause_seconds: float = 0.005
) -> None:
    """Returns once `condition()` is true; fails with `what` if that looks like a hang.

    Args:
      pause_seconds: between two looks; longer where a look is expensive.
    """
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what or "nothing happened"
        time.sleep(pause_seconds)
