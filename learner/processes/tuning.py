"""How the learner's process uses memory, threads and compiled programs."""

import ctypes
import functools
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from seedrl.errors import ConfigError, in_one_line, require_extra

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST = 2**31 - 1
# XLA ends the process at a flag that it does not know: only for the release that was tried, which
# is the last for Python 3.11.
_JAXLIB = "0.10.2"
_OPTION = "xla_cpu_experimental_ynn_fusion_type"
# Variables of jax with which programs here cannot work, and the only value that they may have.
_VARIABLES = {
    "JAX_TRANSFER_GUARD": "allow",
    "JAX_NUMPY_DTYPE_PROMOTION": "standard",
    "JAX_ARRAY_GARBAGE_COLLECTION_GUARD": "allow",
    "JAX_DEFAULT_PRNG_IMPL": "threefry2x32",
    "JAX_LEGACY_PRNG_KEY": "allow",
    **dict.fromkeys(
        ("JAX_DISABLE_JIT", "JAX_ENABLE_CUSTOM_PRNG", "JAX_NO_EXECUTION", "JAX_NO_TRACING"), "0"
    ),
}
_FALSE = ("0", "false", "no", "off", "n", "f")
# Need no trial: `start_devices` tries the first, and any text is good for the second.
_UNTRIED = frozenset({"JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR", *_VARIABLES})
# Flags that need no trial: ours, and that of tests with several devices.
_KNOWN_FLAGS = frozenset({_OPTION, "xla_force_host_platform_device_count"})


def require_jax(*, starts: bool = True) -> None:
    """For a command that uses jax, before it imports it. Raises a UserError if that cannot work.

    `starts`: it uses jax in this process only, whose devices may be started at once.
    """
    require_extra("learner")
    check_variables()
    if starts and os.environ.get("JAX_PLATFORMS", "cpu") != "cpu":
        start_devices()


def check_variables() -> None:
    """Raises ConfigError for a variable of the environment with which jax cannot work here."""
    for name, value in _VARIABLES.items():
        got = os.environ.get(name, value)
        if got != value and not (value == "0" and got.lower() in _FALSE):
            raise ConfigError(f"{name}: expected {value!r} or no such variable, got {got!r}")
    flags = os.environ.get("XLA_FLAGS", "")
    names = sorted(name for name in os.environ if name.startswith("JAX_") and name not in _UNTRIED)
    if {flag.partition("=")[0].lstrip("-") for flag in flags.split()} - _KNOWN_FLAGS:
        names.append("XLA_FLAGS")
    if names:
        _try_variables(tuple((name, os.environ[name]) for name in names))


def tune_process(*, keeps_freed_memory: bool) -> None:
    """Sets up the allocator, thread switching, XLA's flags and the cache of compiled programs.

    Raises ConfigError for a variable of the environment with which jax cannot start.
    """
    check_variables()
    # Not at the top: XLA reads its flags when jax starts, and tests set theirs through this file.
    import jax

    if keeps_freed_memory:
        keep_freed_memory()
    # A thread that waits for the interpreter asks for it after half a millisecond. The default of
    # 5 ms would be most of a step's latency whenever two threads have something to do.
    sys.setswitchinterval(0.0005)
    compile_quick_convolutions()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seedrl" / "jax"
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def start_devices() -> None:
    """Starts jax's back ends; several hosts of a run have to be joined before.

    Raises ConfigError if JAX_PLATFORMS names one that cannot start here.
    """
    import jax

    try:
        jax.devices()
    # jax asserts, without a text, that some of those that are named are there.
    except (RuntimeError, AssertionError) as error:
        text = f": {in_one_line(error)}" if str(error) else ""
        raise ConfigError(
            "JAX_PLATFORMS: expected platforms that jax can use on this machine, such as cpu, got "
            f"{os.environ.get('JAX_PLATFORMS', '')!r}{text}"
        ) from error


@functools.lru_cache  # a process reads them once
def _try_variables(variables: tuple[tuple[str, str], ...]) -> None:
    """Tries them in another process: XLA would end this one at a flag that it does not know."""
    # On the CPU: an accelerator may belong to one process only.
    command = [sys.executable, "-c", "import jax; jax.numpy.ones(2).sum().block_until_ready()"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    tried = subprocess.run(command, env=environment, capture_output=True, text=True)
    if tried.returncode:
        why = next(iter(tried.stderr.strip().splitlines()[-1:]), f"exit code {tried.returncode}")
        named = [each for each in variables if each[0] in why] or variables
        found = ", ".join(name for name, _ in named)
        got = ", ".join(repr(value) for _, value in named)
        raise ConfigError(f"{found}: expected what jax knows, got {got}: {why}")


def keep_freed_memory() -> None:
    """Lets what is freed, up to 2 GiB at once, be used again instead of going back to the kernel.

    To be called by the main thread before others allocate. Elsewhere than on glibc it does nothing.
    """
    # On CPUs XLA takes every result and all of a program's scratch memory from malloc, and by
    # default glibc maps blocks above 32 MiB again each time: the kernel then clears every page of
    # every update.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # Other arenas than the main one always map large blocks. The price: threads wait for each
        # other here, and programs of less than a millisecond take up to a third longer.
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST)


def return_freed_memory() -> None:
    """Gives the kernel what is free between blocks that are not, in all arenas of glibc."""
    # By itself glibc gives back what is free at the end of an arena. Work of many threads leaves
    # small blocks everywhere, so that a process grows by each piece of it, though it keeps little.
    # Other threads wait for memory meanwhile, one arena after another.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def compile_quick_convolutions() -> None:
    """Lets convolutions on CPUs use all cores, as long as nothing of XLA has run."""
    # jaxlib 0.10.2 gives each to YNNPACK, and where its result is kept for the gradient, that takes
    # one thread and three times as long: an update of Pong took 240 ms, and without it 170, on two
    # cores of an EPYC. Dot products and sums stay as they are. Who names the option decides.
    flags = os.environ.get("XLA_FLAGS", "")
    if metadata.version("jaxlib") == _JAXLIB and _OPTION not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{_OPTION}=-individual_convolution".strip()
