"""What processes take, from /proc: this one, and everything that it has started."""

import time
from pathlib import Path

# Of /proc/PID/stat, counted from the state, which follows the name in parentheses.
_PARENT = 1
# clock_getcpuclockid(3) in Linux: the process's number, inverted, above three bits of the clock.
_PROCESS_CLOCK = 0b010


def tree_seconds(root: int) -> float:
    """CPU seconds so far of process `root` and of all living processes that descend from it.

    Zero where there is no /proc.
    """
    return sum(map(_cpu_seconds, _tree(root)))


def tree_bytes(root: int) -> int:
    """Memory of process `root` and of all living processes that descend from it.

    What several processes share is divided among them. Zero where there is no /proc.
    """
    return sum(_proportional_bytes(pid) for pid in _tree(root))


def descendant_bytes(root: int) -> int:
    """As `tree_bytes`, without `root` itself."""
    return sum(_proportional_bytes(pid) for pid in _tree(root) if pid != root)


def _cpu_seconds(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)
    except OSError:
        return 0.0  # it has ended


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # it has ended
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _tree(root: int) -> dict[int, list[str]]:
    stats = _stats()
    members = {root}
    # A child has a higher number than its parent unless the numbers have wrapped round.
    while grown := {pid for pid, fields in stats.items() if int(fields[_PARENT]) in members}:
        if grown <= members:
            break
        members |= grown
    return {pid: fields for pid, fields in stats.items() if pid in members}


def _stats() -> dict[int, list[str]]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has ended
        found[int(folder.name)] = text.rpartition(")")[2].split()
    return found
