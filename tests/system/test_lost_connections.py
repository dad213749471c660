"""A process that stands still, a network that is cut, a learner that is killed, an idle connection.

A real env server and the service are processes of their own. Where the network is cut, a proxy in
this process stands between them.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.scale import scaled
from tests.patience import wait_until
from tests.system.proxy import Proxy
from tests.system.served_process import Served, env_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_ENVS = 4
# A learner waits 20 seconds for the answer to a ping, an env server 2.
_NOTICED_SECONDS = 40.0
_LOST_LEARNER_SECONDS = 15.0  # it takes 3, and more on a busy machine
Record = Callable[[str, object], None]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path, num_slots=_ENVS) as served:
        yield served


def test_a_frozen_learner_is_left_and_found_again(
    served: Served, tmp_path: Path, record_property: Record
) -> None:
    log = tmp_path / "env_server.log"
    with env_server(served.seen.address, _ENVS, log=log):
        before = served.wait_for(_ENVS)
        frozen = time.monotonic()
        os.kill(before.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: "disconnected from the learner" in log.read_text())
            seconds = time.monotonic() - frozen
        finally:
            os.kill(before.pid, signal.SIGCONT)
        wait_until(lambda: served.seen.live == _ENVS and served.seen.leases > before.leases)
        record_property("learner_noticed_seconds", round(seconds, 2))
        assert seconds < _LOST_LEARNER_SECONDS
        assert served.seen.broken == []


@pytest.mark.gate  # waits for the 20 seconds of the learner's ping
def test_a_frozen_env_server_loses_its_lease_and_comes_back(
    served: Served, record_property: Record
) -> None:
    with env_server(served.seen.address, _ENVS) as process:
        before = served.wait_for(_ENVS)
        frozen = time.monotonic()
        os.kill(process.pid, signal.SIGSTOP)
        served.wait_for(0)
        seconds = time.monotonic() - frozen
        os.kill(process.pid, signal.SIGCONT)
        wait_until(lambda: served.seen.live == _ENVS and served.seen.leases > before.leases)
        record_property("env_server_noticed_seconds", round(seconds, 2))
        assert seconds < _NOTICED_SECONDS
        assert served.seen.broken == []


@pytest.mark.parametrize(
    "seconds", [0.1, *(pytest.param(seconds, marks=pytest.mark.gate) for seconds in (1, 4, 10))]
)
def test_a_cut_network_mixes_nothing_up_and_the_env_server_returns(
    tmp_path: Path, seconds: float, record_property: Record
) -> None:
    with (
        Served(tmp_path, "127.0.0.1:0", num_slots=_ENVS) as served,
        contextlib.ExitStack() as stack,
    ):
        port = int(served.seen.address.rpartition(":")[2])
        proxy = stack.enter_context(contextlib.closing(Proxy(port)))
        with env_server(proxy.address, _ENVS, "--no-local-link"):
            wait_until(lambda: served.seen.rows > 50)
            proxy.cut()
            time.sleep(seconds)
            proxy.heal()
            healed, rows = time.monotonic(), served.seen.rows
            wait_until(lambda: served.seen.rows > rows + 2 * _ENVS)
            record_property(
                f"back_after_{seconds:g}_s_seconds", round(time.monotonic() - healed, 2)
            )
        served.wait_for(0)
        record_property("residue_rows", len(served.seen.broken))
        assert served.seen.broken == []


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.gate)])
def test_env_servers_of_a_killed_learner_are_back_soon_after_it_listens(
    served: Served, kills: int, record_property: Record
) -> None:
    slowest = 0.0
    with env_server(served.seen.address, _ENVS, "--no-local-link"):
        wait_until(lambda: served.seen.rows > 50)
        for _ in range(kills if kills == 1 else scaled(kills)):
            served.kill()
            served.start()
            listening = served.seen.seconds
            slowest = max(slowest, served.wait_for(_ENVS).seconds - listening)
    record_property("back_after_learner_seconds", round(slowest, 2))
    assert slowest < _NOTICED_SECONDS


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.gate)])
def test_a_connection_that_waits_for_long_is_not_ended_for_its_pings(
    served: Served, seconds: int, record_property: Record
) -> None:
    with env_server(served.seen.address, _ENVS, "--no-local-link"):
        # Nobody answers from now on: only pings and signs of life go to and fro.
        seen = served.wait_for(_ENVS)
        served.suspend_answers()
        wait_until(lambda: served.seen.seconds > seen.seconds + seconds)
        assert served.seen.live == _ENVS
        served.resume_answers()
        rows = served.seen.rows
        wait_until(lambda: served.seen.rows > rows + _ENVS)
        assert served.seen.leases == seen.leases
    record_property("idle_seconds", seconds)
