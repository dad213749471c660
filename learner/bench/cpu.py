"""CPU seconds of processes, from /proc: this one's, and those of everything that it has started."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
# Of /proc/PID/stat, counted from the state, which follows the name in parentheses.
_PARENT, _USER, _SYSTEM = 1, 11, 12


def tree_seconds(root: int) -> float:
    """CPU seconds so far of process `root` and of all living processes that descend from it.

    In steps of 10 ms a process. Zero where there is no /proc.
    """
    stats = _stats()
    members = {root}
    # A child has a higher number than its parent unless the numbers have wrapped round.
    while grown := {pid for pid, fields in stats.items() if int(fields[_PARENT]) in members}:
        if grown <= members:
            break
        members |= grown
    fields_of_members = [fields for pid, fields in stats.items() if pid in members]
    return sum(int(f[_USER]) + int(f[_SYSTEM]) for f in fields_of_members) / _TICKS


def _stats() -> dict[int, list[str]]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has ended
        found[int(folder.name)] = text.rpartition(")")[2].split()
    return found
