"""Memory, thread switching and XLA's flags, each in a process of its own."""

import ctypes
import os
import subprocess
import sys
from importlib import metadata

import pytest

from learner.processes.tuning import TRIED_FLAGS, check_variables
from seedrl.errors import ConfigError
from tests.patience import SECONDS

# Prints MiB that the kernel had to give anew for the second of two blocks. Not numpy's memory, for
# which it asks for huge pages. In a thread, because glibc treats those unlike the main one.
FAULTS = """
import resource, threading
from learner.processes.tuning import keep_freed_memory

def count():
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block = b"x" * 100 * 2**20
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        del block
    print(faults * resource.getpagesize() / 2**20)

keep_freed_memory()
thread = threading.Thread(target=count)
thread.start()
thread.join()
"""
# Prints MiB that the kernel got back: of 100 MiB in small blocks each hundredth is kept, by a
# thread, which has an arena of its own.
RESIDENT = """
import resource, threading
from pathlib import Path
from learner.processes.tuning import return_freed_memory

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

def count():
    blocks = [b"x" * 50_000 for _ in range(2_000)]
    kept = blocks[::100]
    del blocks
    before = resident_mib()
    return_freed_memory()
    print(before - resident_mib())

thread = threading.Thread(target=count)
thread.start()
thread.join()
"""
# Prints whether XLA leaves a convolution to YNNPACK.
CONVOLUTION = """
import jax, jax.numpy as jnp
from learner.processes.tuning import compile_quick_convolutions

compile_quick_convolutions()
images, kernel = jnp.ones((2, 20, 20, 4)), jnp.ones((8, 8, 4, 32))
layout = ("NHWC", "HWIO", "NHWC")
convolve = lambda *of: jax.lax.conv_general_dilated(*of, (4, 4), "SAME", dimension_numbers=layout)
print("ynn_fusion" in jax.jit(convolve).lower(images, kernel).compile().as_text())
"""
# Prints for two configurations whether jax dispatches ahead. With the second one it then calls a
# program a thousand times, and prints how often the thread waited for another one.
WAITS = """
import jax, resource
from learner.processes.tuning import tune_for
from seedrl import config_io

for config in ("reverse_grpo", "cartpole_ppo"):
    tune_for(config_io.load(config))
    print(jax.config.read("jax_cpu_enable_async_dispatch"))
program = jax.jit(lambda x: jax.numpy.tanh(x @ x))
x = program(jax.numpy.zeros((64, 64))).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
for _ in range(1000):
    x = program(x).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before)
"""
TUNED = """
import jax, os, sys
from learner.processes.tuning import tune_process

tune_process(keeps_freed_memory=False)
flags = os.environ.get("XLA_FLAGS", "")
print(sys.getswitchinterval(), jax.config.jax_compilation_cache_dir, flags)
"""
OPTION = "xla_cpu_experimental_ynn_fusion_type"


def printed(program: str, **variables: str) -> list[str]:
    own = {**os.environ, **variables}
    own.pop("JAX_COMPILATION_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=own,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_freed_memory_is_returned_or_used_again() -> None:
    assert float(printed(RESIDENT)[0]) > 80
    assert float(printed(FAULTS)[0]) < 4


def test_only_a_token_policy_does_something_else_while_a_program_runs() -> None:
    *is_ahead, waits = printed(WAITS)
    assert is_ahead == ["True", "False"]
    assert int(waits) < 500


@pytest.mark.parametrize(
    "flags", ["", pytest.param(f"--{OPTION}=individual_convolution", marks=pytest.mark.gate)]
)
def test_threads_take_turns_programs_are_cached_and_convolutions_are_not_ynnpacks_unless_asked(
    flags: str,
) -> None:
    interval, cache, *own, is_ynnpacks = printed(
        TUNED + CONVOLUTION, XDG_CACHE_HOME="/some/cache", XLA_FLAGS=flags
    )
    assert (interval, cache) == ("0.0005", "/some/cache/seedrl/jax")
    if metadata.version("jaxlib") == "0.10.2":  # for which the option is set
        assert own == [flags or f"--{OPTION}=-individual_convolution"]
        assert is_ynnpacks == str(bool(flags))


@pytest.mark.parametrize(
    ("name", "value", "sound"),
    [
        ("JAX_TRANSFER_GUARD", "disallow", "allow"),
        ("JAX_NUMPY_DTYPE_PROMOTION", "strict", "standard"),
        ("JAX_DEFAULT_PRNG_IMPL", "rbg", "threefry2x32"),
        ("JAX_DISABLE_JIT", "1", "False"),
        ("JAX_NO_TRACING", "true", "0"),
    ],
)
def test_a_variable_with_which_no_program_works_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, sound: str
) -> None:
    monkeypatch.setenv(name, sound)
    check_variables()
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        check_variables()
    assert str(caught.value).startswith(f"{name}: ") and value in str(caught.value)


def test_flags_are_tried_once_for_a_process_and_those_that_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("XLA_FLAGS", TRIED_FLAGS):
        monkeypatch.setenv(name, "--xla_nonsense=1")
    check_variables()
    monkeypatch.delenv(TRIED_FLAGS)
    with pytest.raises(ConfigError, match="XLA_FLAGS.*nonsense"):
        check_variables()
    assert TRIED_FLAGS not in os.environ
