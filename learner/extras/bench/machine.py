"""The machine, versions and commit that a benchmark ran with."""

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("seedrl", "jax", "jaxlib", "grpcio", "numpy", "gymnasium", "ale-py", "flax", "optax")


def describe() -> dict[str, Any]:
    """Plain values: what somebody else needs to compare."""
    # Here: an experiment asks for the rest of this file, and needs no jax.
    import jax

    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": _processor(),
        "cores": num_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "devices": [device.device_kind for device in jax.local_devices()],
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "commit": commit(),
    }


def in_words() -> str:
    """The processor, how many cores of it, and the commit."""
    name, dash, dirty = (commit() or "unknown").partition("-")
    words = [_processor(), f"{num_cores()} cores", f"commit {name[:12]}{dash}{dirty}"]
    return ", ".join(filter(None, words))


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def commit() -> str | None:
    """The checkout's commit, with `-dirty` if files differ from it; None for an installed wheel."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
