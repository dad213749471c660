"""The arithmetic of benchmarks, worked by hand, and what a result is."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from learner.extras.bench.measuring import (
    interleave,
    rate,
    serial,
)
from tests.patience import SECONDS

_ENDLESS = """
import time
from learner.extras.bench.measuring import apart
from seedrl.config_io import load
from seedrl.programs.outcome import exit_code, leave
leave(exit_code(lambda: apart(load("cartpole_ppo"), time.sleep, 1e6), prog="test"))
"""


def test_a_signal_ends_a_measurement_apart_with_its_process() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _ENDLESS])
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    deadline = time.monotonic() + SECONDS
    while len(started := children.read_text().split()) < 2:  # one more tracks resources
        assert time.monotonic() < deadline
    parent.send_signal(signal.SIGINT)
    assert parent.wait(SECONDS) == 143
    while any(Path(f"/proc/{child}/environ").exists() for child in started):
        assert time.monotonic() < deadline


def test_things_are_measured_in_turn_and_every_other_round_backwards() -> None:
    order: list[str] = []
    values = iter(range(1, 10))

    def measure(name: str) -> float:
        order.append(name)
        return next(values)

    measured = interleave({name: lambda n=name: measure(n) for name in "abc"}, rounds=3)
    assert order == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
    assert measured == {"a": (1, 6, 7), "b": (2, 5, 8), "c": (3, 4, 9)}


def test_a_rate_is_the_amount_over_the_time_that_it_took() -> None:
    times = iter([100.0, 100.4, 100.8, 101.25])
    # Three pieces of work of 5, in 1.25 seconds: the one that is begun is finished.
    assert rate(lambda: 5, 1.0, clock=lambda: next(times)) == 12.0
    assert serial(3.0, 6.0) == 2.0
