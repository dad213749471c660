"""How the learner's process uses memory, threads and compiled programs."""

import ctypes
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST = 2**31 - 1
# XLA ends the process at a flag that it does not know: only for the release that was tried, which
# is the last for Python 3.11.
_JAXLIB = "0.10.2"
_OPTION = "xla_cpu_experimental_ynn_fusion_type"


def tune_process(*, keeps_freed_memory: bool) -> None:
    """Sets up the allocator, thread switching, XLA's flags and the cache of compiled programs.

    `keeps_freed_memory`: see `LearningConfig.keep_freed_memory`.
    """
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


def keep_freed_memory() -> None:
    """Lets what is freed, up to 2 GiB at once, be used again instead of going back to the kernel.

    On CPUs XLA takes every result and all of a program's scratch memory from malloc, and by default
    glibc maps blocks above 32 MiB again each time: the kernel then clears every page of every
    update. One arena, because those of other threads than the main one always map large blocks.
    That has a price: threads wait for each other there, and it gets fragmented. What computes
    in less than a millisecond takes up to a third longer.

    To be called by the main thread before others allocate. Elsewhere than on glibc it does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST)


def returns_freed_memory(*, is_kept: bool) -> Callable[[], None]:
    """`return_freed_memory`, or nothing where freed memory `is_kept` on purpose."""
    return (lambda: None) if is_kept else return_freed_memory


def return_freed_memory() -> None:
    """Gives the kernel what is free between blocks that are not, in all arenas.

    By itself glibc gives back what is free at the end of an arena. Work of many threads leaves
    small blocks everywhere, so that a process grows by each piece of it, though it keeps little.

    Any thread may call it; others wait for memory meanwhile, one arena after another. Elsewhere
    than on glibc it does nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def compile_quick_convolutions() -> None:
    """Lets convolutions on CPUs use all cores, as long as nothing of XLA has run.

    jaxlib 0.10.2 gives each to YNNPACK, and where its result is kept for the gradient, that takes
    one thread and three times as long: the first layer of the Nature network takes 360 images in 30
    ms, without YNNPACK in 11, and an update of Pong takes 240 ms and 170 (`seedrl bench learner` on
    two cores of an EPYC). Dot products and sums stay as they are.

    Who names the option in XLA_FLAGS decides.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if metadata.version("jaxlib") == _JAXLIB and _OPTION not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{_OPTION}=-individual_convolution".strip()
