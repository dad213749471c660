"""A network that is cut and heals, a learner that is killed, a connection that is idle: over TCP.

Between a real env server and the service, each a process of its own, stands a proxy in this one.
"""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.scale import scaled
from tests.patience import wait_until
from tests.system.served_process import Served, env_server

pytestmark = [
    pytest.mark.gate,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

_ENVS = 4
Record = Callable[[str, object], None]


class Proxy:
    """Passes bytes on, or, while `is_cut`, keeps what arrives: a black hole that heals.

    A thread for each direction of each connection; all of them end with it.
    """

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._may_pass = threading.Event()
        self._may_pass.set()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, seconds: float) -> None:
        """Nothing passes for so long, either way."""
        self._may_pass.clear()
        time.sleep(seconds)
        self._may_pass.set()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
                other = socket.create_connection(self._target)
            except OSError:
                return
            self._open += [one, other]
            for source, sink in ((one, other), (other, one)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(2**16):
                self._may_pass.wait()
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends all connections."""
        self._may_pass.set()
        for each in (self._listening, *self._open):
            each.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path, "127.0.0.1:0", num_slots=_ENVS) as served:
        yield served


def test_what_a_cut_network_loses_is_counted_and_the_env_server_returns(
    served: Served, record_property: Record
) -> None:
    proxy = Proxy(served.seen.address)
    try:
        with env_server(proxy.address, _ENVS, "--no-local-link"):
            wait_until(lambda: served.seen.rows > 50)
            for seconds in (0.1, 1.0, 4.0, 10.0):
                proxy.cut(seconds)
                healed, rows = time.monotonic(), served.seen.rows
                wait_until(lambda rows=rows: served.seen.rows > rows + 2 * _ENVS)
                back = time.monotonic() - healed
                record_property(f"back_after_{seconds:g}_s_seconds", round(back, 2))
                assert served.seen.broken == []
        wait_until(lambda: served.seen.live == 0)
        record_property("residue_rows", len(served.seen.broken))
        assert served.seen.broken == []
    finally:
        proxy.close()


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
