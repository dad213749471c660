"""What every test runs under: four CPU devices, strict broadcasting, programs compiled in a hurry.

The settings are made before any test module imports jax. Programs for one device still run on
device 0, as fast as with a single device (measured: 10 microseconds to dispatch either way; a
256 x 256 product within 15 per cent). Devices and broadcasting hold for this process only: a
learner that a test starts sees the one device that it would see elsewhere.

Programs are compiled without optimization, here and in the processes that tests start: an update
of R2D2 takes a quarter of the CPU time (1.3 instead of 5.4 seconds), and half of the suite's time
was the compiler's.
`XLA_FLAGS= make test` runs what users run.

The cache of compiled programs is for both. The folder may be deleted at any time.
"""

import fcntl
import gc
import os
import signal
import sys
from collections.abc import Generator, MutableSequence
from importlib import metadata
from pathlib import Path

# The plug-in package is imported as a user's: from a folder on the path, not from the repository.
sys.path.append(str(Path(__file__).parent / "plugin"))

# With fewer threads than twice the devices, un-awaited collectives can block each other for ever.
os.environ.setdefault("PJRT_NPROC", "8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".compile_cache")
)
# As each program sets it for itself; here gRPC is imported before any of them has started.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# By default only what takes a second is kept, and hardly any of our programs does.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
# Nobody looks up which line an operation of a program came from: a fourteenth of the CPU time.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"
    # Later ones have no other emitters, and a flag that XLA does not know ends the process.
    + " --xla_cpu_use_fusion_emitters=false"
    * metadata.version("jaxlib").startswith("0.10."),
)

import pytest

from learner.processes.tuning import TRIED_FLAGS, compile_quick_convolutions

# Until all tests are collected: there is nothing to find in what is imported, again and again.
gc.disable()

# As learners do, so that tests find the programs of these in the cache.
compile_quick_convolutions()
# A trial of these flags, in a process of its own, would take each program a second.
os.environ.setdefault(TRIED_FLAGS, os.environ["XLA_FLAGS"])

# As if a terminal had started the tests: what `nohup` makes them ignore, their programs would, too.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def set_up_jax() -> None:
    """Devices and broadcasting. `make proofs` runs some tests again with more."""
    import jax

    jax.config.update("jax_num_cpu_devices", int(os.environ.get("SEEDRL_TEST_DEVICES", "4")))
    jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_configure(config: pytest.Config) -> None:
    """Not where other processes run the tests (pytest-xdist): jax takes a second to import."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    import hypothesis

    set_up_jax()
    # Neither the time of an example nor chance decides about a test.
    hypothesis.settings.register_profile(
        "suite",
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """One process before the others, which read what it has compiled of all modules."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    with open(__file__) as own:
        try:
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(own, fcntl.LOCK_SH)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Puts back what a run in this process changes: the mode of new files, where it imports."""
    mask = os.umask(0o022)
    os.umask(mask)
    paths = list(sys.path)  # a config's folder comes before an installed package
    before = sys.modules.get("seedrl.config_io")
    folders = [] if before is None else list(before._folders)
    try:
        return (yield)
    finally:
        os.umask(mask)
        sys.path[:] = paths
        if (config_io := sys.modules.get("seedrl.config_io")) is not None:
            config_io._folders[:] = folders
            config_io._read_files.clear()


def pytest_collection_finish() -> None:
    """Keeps what is loaded by now out of sight of the garbage collector, which looks less often.

    It would go through all modules again and again: about a twentieth of the CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_collection_modifyitems(
    config: pytest.Config, items: MutableSequence[pytest.Item]
) -> None:
    """Gates only if they are asked for; then files with slow tests first, and those of whole runs:
    at the end, one process would work while the others wait.
    """
    if "gate" not in config.option.markexpr:
        gates = [item for item in items if item.get_closest_marker("gate")]
        config.hook.pytest_deselected(items=gates)
        items[:] = [item for item in items if item not in gates]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, "system" not in item.path.parts))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Pytest has just looked through all that is left for garbage: once is enough."""
    gc.freeze()
