"""What a machine is: `python -m tests.accelerator.facts FILE`, in the environment of the day."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax

from learner.bench.machine import describe


def main() -> int:
    """Writes the facts, and prints them in a line."""
    facts = describe()
    device = jax.local_devices()[0]
    facts["backend"] = jax.default_backend()
    facts["device_bytes"] = (device.memory_stats() or {}).get("bytes_limit")
    facts["driver"] = _driver()
    Path(sys.argv[1]).write_text(json.dumps(facts, indent=2) + "\n")
    gib = f", {facts['device_bytes'] / 2**30:.0f} GiB for jax" if facts["device_bytes"] else ""
    print(
        f"{len(jax.local_devices())} x {device.device_kind}{gib}; {facts['cores']} cores, "
        f"{facts['memory_gib']} GiB; Python {facts['python']}, jax {facts['versions']['jax']}"
    )
    return 0


def _driver() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
