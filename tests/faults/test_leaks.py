"""Env servers and strangers come and go by the thousand: a learner stays as it is."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from seedrl.exit_codes import ExitCode
from seedrl.wire import channel
from seedrl.wire.contract import MAJOR, MINOR
from seedrl.wire.framing import ToLearner
from seedrl.wire.seedrl_pb2 import FromEnvServer, Hello
from tests.faults.memory import Sample, sample, slope
from tests.faults.scale import VARIABLE, scaled
from tests.faults.watched_learner import FLAGS
from tests.patience import SECONDS
from tests.system.processes import Program, Programs, records, wait_for
from tests.typed_call import connect_method

pytestmark = [
    pytest.mark.gate,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
_COMINGS, _STRANGERS = 150, 20
# A learner keeps the last 4,096 leases that nobody has reported.
_KEPT_LEASES = 4500
# Whatever a learner made once for each connection, and kept, would take more than that: 4 KiB.
_MOST_MIB_PER_THOUSAND = 4.0
_SAMPLES = 20


def say_hello(address: str) -> None:
    """As an env server of one environment, which goes as soon as it is answered."""
    is_answered = threading.Event()

    def messages() -> Iterator[ToLearner]:
        hello = Hello(major=MAJOR, minor=MINOR, num_envs=1, num_groups=1, host="stranger", pid=1)
        yield FromEnvServer(hello=hello)
        is_answered.wait(SECONDS)

    with channel.connect(address) as connection:
        call = connect_method(connection)(messages(), timeout=SECONDS)
        with contextlib.suppress(grpc.RpcError):
            next(call)
        is_answered.set()
        call.cancel()


def connect(path: Path) -> None:
    """Without a word."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))


def quiet_samples(learner: Program) -> list[Sample]:
    """Enough of them that some see neither a save nor a connection that is just closed."""
    taken = []
    for _ in range(_SAMPLES):
        if found := sample(learner.pid, time.monotonic()):
            taken.append(found)
        time.sleep(0.1)
    return taken


def test_a_learner_keeps_nothing_of_those_who_have_gone(programs: Programs, tmp_path: Path) -> None:
    workdir, socket_path = tmp_path / "run", tmp_path / "learner"
    address = f"unix:{socket_path}"
    words = ("--workdir", workdir, "--bind", address, *FLAGS, "--checkpoint.interval-seconds", 1)
    learner = programs("learner", "cartpole_r2d2", *words)
    serve = ("envs_server", "--learner", address, "--num-envs", 3, "--allow-env", "tests.*")
    programs(*serve)  # goes on
    wait_for(lambda: any(line["updates"] > 0 for line in records(workdir)), learner)

    comings = scaled(_COMINGS)
    warm = comings // 10
    for _ in range(scaled(_KEPT_LEASES)):
        say_hello(address)
    before, churning = list[Sample](), list[Sample]()
    for number in range(comings):
        if number == warm:
            before = quiet_samples(learner)
        guest = programs(*serve)
        wait_for(lambda g=guest: "connected: " in g.stderr, learner)
        if number >= warm:
            churning += filter(None, [sample(learner.pid, time.monotonic())])
        guest.signal(signal.SIGKILL if number % 3 else signal.SIGTERM)
        guest.end()
        for _ in range(_STRANGERS):
            connect(socket_path)
            say_hello(address)
    for what in ("descriptors", "threads"):
        # What saves and connections that are just closed have comes and goes; a leak stays.
        first = min(getattr(each, what) for each in before)
        wait_for(
            lambda n=first, w=what: any(getattr(s, w) <= n for s in quiet_samples(learner)), learner
        )
    learner.signal(signal.SIGTERM)
    assert learner.end() == ExitCode.OK, learner.stderr
    if VARIABLE not in os.environ:  # a few samples have no slope
        found = slope(churning)
        assert found is not None
        hours = (churning[-1].seconds - churning[0].seconds) / 3600
        thousands = (comings - warm) * (1 + 2 * _STRANGERS) / 1000
        assert found.per_hour * hours / thousands <= _MOST_MIB_PER_THOUSAND
