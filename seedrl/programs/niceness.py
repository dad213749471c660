"""How far this process stands back for others that want the same processor: nice(1)."""

import contextlib
import os
import threading
from pathlib import Path

MOST = 19
_THREADS = Path("/proc/self/task")


def stand_back(niceness: int) -> None:
    """Gives all threads of this process at least `niceness` (0 to 19), also those to come.

    Who stands back further stays there: without privileges nobody comes forward again.
    """
    for thread in _threads():
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            if os.getpriority(os.PRIO_PROCESS, thread) < niceness:
                os.setpriority(os.PRIO_PROCESS, thread, niceness)


def _threads() -> list[int]:
    """Linux has a niceness for each thread, and gRPC's own are not known to Python."""
    if _THREADS.is_dir():
        return [int(thread.name) for thread in _THREADS.iterdir()]
    return [threading.get_native_id()]
