"""What every test runs under: four CPU devices, strict broadcasting, a cache of compiled programs.

The settings are made while pytest loads this file, before any test module imports jax. Programs
for one device still run on device 0, as fast as with a single device (measured: 10 microseconds to
dispatch either way; a 256 x 256 product within 15 per cent). Devices and broadcasting hold for this
process only: a learner that a test starts sees the one device that it would see elsewhere.

The cache is for both: it brought the tests of networks, replay and rl from 70 to 23 seconds of CPU
when they ran again. The folder may be deleted at any time.
"""

import os
from collections.abc import MutableSequence
from pathlib import Path

# With fewer threads than twice the devices, un-awaited collectives can block each other for ever.
os.environ.setdefault("PJRT_NPROC", "32")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".compile_cache")
)
# By default only what takes a second is kept, and hardly any of our programs does.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(items: MutableSequence[pytest.Item]) -> None:
    """Files with slow tests first: at the end, one process would work while the others wait."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items[:] = sorted(items, key=lambda item: item.path not in slow)
