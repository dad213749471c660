"""How the learner's process uses memory, threads and compiled programs."""

import ctypes
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from seedrl.config import Config, acts_on_tokens
from seedrl.errors import ConfigError, in_one_line
from seedrl.hints import require_extra

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
    **{f"JAX_ERROR_CHECKING_BEHAVIOR_{of}": "ignore" for of in ("DIVIDE", "NAN", "OOB")},
    "JAX_LEGACY_PRNG_KEY": "allow",
    **dict.fromkeys(
        ("JAX_DISABLE_JIT", "JAX_ENABLE_CUSTOM_PRNG", "JAX_NO_EXECUTION", "JAX_NO_TRACING"), "0"
    ),
}
_FALSE = ("0", "false", "no", "off", "n", "f")
# Flags that need no trial: ours, and that of tests with several devices.
_KNOWN_FLAGS = frozenset({_OPTION, "xla_force_host_platform_device_count"})
# Variable with the flags that were tried: a process inherits it, and need not try them again.
TRIED_FLAGS = "SEEDRL_TRIED_XLA_FLAGS"


def require_jax(*, starts: bool = True) -> None:
    """For a command that uses jax, before it does. Raises ConfigError if that cannot work.

    `starts`: its devices may be started already.
    """
    require_extra("learner")
    check_variables()
    if starts and _own_variables():
        start_devices()


def check_variables() -> None:
    """Raises ConfigError for a variable of the environment with which programs cannot work."""
    for name, value in _VARIABLES.items():
        got = os.environ.get(name, value)
        if got != value and not (value == "0" and got.lower() in _FALSE):
            raise ConfigError(f"{name}: expected {value!r} or no such variable, got {got!r}")
    _check_flags(os.environ.get("XLA_FLAGS", ""))


def _own_variables() -> list[str]:
    # The user's, which jax reads, but for a platform that is always there.
    names = sorted(name for name in os.environ if name.startswith("JAX_"))
    return [name for name in names if (name, os.environ[name]) != ("JAX_PLATFORMS", "cpu")]


def tune_for(config: Config) -> None:
    """Sets up the process for a learner of `config`; see `tune_process`."""
    tune_process(
        keeps_freed_memory=config.learning.keep_freed_memory,
        dispatches_ahead=acts_on_tokens(config),  # which takes turns while the device computes
    )


def tune_process(*, keeps_freed_memory: bool, dispatches_ahead: bool = False) -> None:
    """Sets up the allocator, threads, XLA's flags and the cache of compiled programs.

    `dispatches_ahead`: the thread that calls a program has other work while a CPU runs it.

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
    # On CPUs jax can run programs in a thread of its own. If the caller only waits, that is in
    # vain, and costs two switches of threads for each batch: as much as a small network.
    jax.config.update("jax_cpu_enable_async_dispatch", dispatches_ahead)
    compile_quick_convolutions()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seedrl" / "jax"
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # the user decides first
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def start_devices() -> None:
    """Starts jax's back ends; several hosts of a run have to be joined before.

    Raises ConfigError that names a variable of the environment with which they cannot start.
    """
    names = _own_variables()
    try:
        import jax

        jax.devices()
        names = [name for name in names if name != "JAX_PLATFORMS"]
        if names:  # some are only read when something is computed
            jax.block_until_ready(jax.numpy.ones(2) + 1)
    # jax asserts, without a text, that some of the platforms that are named are there.
    except (RuntimeError, AssertionError, ValueError, TypeError, AttributeError) as error:
        text = in_one_line(error)
        found = [name for name in names if name in text or name == "JAX_PLATFORMS"] or names
        found = found or ["JAX_PLATFORMS"]
        got = ", ".join(f"{name}={os.environ.get(name, '')}" for name in found)
        raise ConfigError(
            f"{found[0]}: expected a value by which jax can start on this machine, got {got}"
            f"{f': {text}' * bool(text)}"
        ) from error


def _check_flags(flags: str) -> None:
    """Tries XLA's flags in another process: XLA would end this one at a flag that is wrong.

    Once for this process and those that it starts.
    """
    if {flag.partition("=")[0].lstrip("-") for flag in flags.split()} <= _KNOWN_FLAGS:
        return
    if flags == os.environ.get(TRIED_FLAGS):
        return
    # Alone, and on the CPU: an accelerator may belong to one process only.
    # -P: not from the current folder, which may be a run's, and anybody's.
    command = [sys.executable, "-P", "-c", "import jax; jax.devices()"]
    # Without the user's variables of jax: only the flags are tried.
    others = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = {**others, "JAX_PLATFORMS": "cpu"}
    tried = subprocess.run(command, env=environment, capture_output=True, text=True)
    if tried.returncode:
        why = next(iter(tried.stderr.strip().splitlines()[-1:]), f"exit code {tried.returncode}")
        raise ConfigError(f"XLA_FLAGS: expected flags that XLA knows, got {flags!r}: {why}")
    os.environ[TRIED_FLAGS] = flags


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
