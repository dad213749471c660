"""A benchmark in a process of its own, with the memory settings of its configuration."""

import ctypes
import dataclasses
import os
import tempfile
import threading
from collections.abc import Iterator

import pytest

from learner.bench.measure import own_process
from learner.bench.measure.result import Conditions, Result
from seedrl import config_file


def of_this_process(name: str, *, unit: str) -> Iterator[Result]:
    """Two results: the number of this process, beside the arenas that malloc makes for threads."""
    result = Result(
        name=name,
        unit=unit,
        limit_name="arenas",
        ours=(float(os.getpid()),),
        limits=(float(count_arenas()),),
        conditions=Conditions(),
    )
    yield result
    yield result


def fails() -> Iterator[Result]:
    """As if no env server came."""
    yield from ()
    raise RuntimeError("nothing happened")


def count_arenas() -> int:
    """glibc's arenas while there is another thread that has memory."""
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    is_counted = threading.Event()
    thread = threading.Thread(target=lambda: (bytearray(2_000), is_counted.wait()))
    thread.start()
    with tempfile.NamedTemporaryFile() as file:
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        text = file.read().decode()
    is_counted.set()
    thread.join()
    return text.count("<heap nr=")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="not glibc")
@pytest.mark.parametrize("keeps_freed_memory", [False, True])
def test_rows_come_from_a_process_that_is_tuned_like_the_learner(keeps_freed_memory: bool) -> None:
    config = config_file.load("cartpole_r2d2")
    learning = dataclasses.replace(config.learning, keep_freed_memory=keeps_freed_memory)
    config = dataclasses.replace(config, learning=learning)
    result, again = own_process.results(config, of_this_process, "a name", unit="a unit")
    assert result == again
    assert (result.name, result.unit) == ("a name", "a unit")
    assert result.ours[0] != os.getpid()
    assert (result.limits[0] == 1) == keeps_freed_memory


def test_what_the_benchmark_raises_is_raised_here() -> None:
    with pytest.raises(RuntimeError, match="nothing happened"):
        own_process.results(config_file.load("cartpole_r2d2"), fails)
