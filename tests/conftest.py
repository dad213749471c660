"""What every test of the suite runs under: four CPU devices and strict broadcasting.

The settings are made while pytest loads this file, before any test module imports jax. Programs
for one device still run on device 0, as fast as with a single device (measured: 10 microseconds to
dispatch either way; a 256 x 256 product within 15 per cent). They hold for this process only: a
learner that a test starts sees the one device that it would see elsewhere.
"""

import os

# With fewer threads than twice the devices, un-awaited collectives can block each other for ever.
os.environ.setdefault("PJRT_NPROC", "32")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_rank_promotion", "raise")
