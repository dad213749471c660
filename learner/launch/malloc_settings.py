"""How the process's memory allocator treats what is freed."""

import ctypes
from collections.abc import Callable

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST = 2**31 - 1


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
