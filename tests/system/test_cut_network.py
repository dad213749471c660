"""A network that is cut and heals, a learner that is killed, a connection that is idle: over TCP.

Between a real env server and the service, each a process of its own, stands a proxy in this one.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.scale import scaled
from tests.patience import wait_until
from tests.system.served_process import Served, env_server
from tests.tools.soak.proxy import Proxy

pytestmark = [
    pytest.mark.gate,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

_ENVS = 4
Record = Callable[[str, object], None]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path, "127.0.0.1:0", num_slots=_ENVS) as served:
        yield served


def test_what_a_cut_network_loses_is_counted_and_the_env_server_returns(
    served: Served, record_property: Record
) -> None:
    with contextlib.closing(Proxy(int(served.seen.address.rpartition(":")[2]))) as proxy:
        with env_server(proxy.address, _ENVS, "--no-local-link"):
            wait_until(lambda: served.seen.rows > 50)
            for seconds in (0.1, 1.0, 4.0, 10.0):
                proxy.cut()
                time.sleep(seconds)
                proxy.heal()
                healed, rows = time.monotonic(), served.seen.rows
                wait_until(lambda rows=rows: served.seen.rows > rows + 2 * _ENVS)
                back = time.monotonic() - healed
                record_property(f"back_after_{seconds:g}_s_seconds", round(back, 2))
                assert served.seen.broken == []
        wait_until(lambda: served.seen.live == 0)
        record_property("residue_rows", len(served.seen.broken))
        assert served.seen.broken == []


def test_env_servers_of_a_killed_learner_are_back_soon_after_it_listens(
    served: Served, record_property: Record
) -> None:
    slowest = 0.0
    with env_server(served.seen.address, _ENVS, "--no-local-link"):
        wait_until(lambda: served.seen.rows > 50)
        for _ in range(scaled(5)):
            served.kill()
            served.start()
            listening = served.seen.seconds
            wait_until(lambda: served.seen.live == _ENVS)
            slowest = max(slowest, served.seen.seconds - listening)
    record_property("back_after_learner_seconds", round(slowest, 2))
    assert slowest < 15.0


def test_a_connection_that_waits_for_long_is_not_ended_for_its_pings(
    served: Served, record_property: Record
) -> None:
    seconds = scaled(60)
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
