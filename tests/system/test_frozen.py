"""A process that stands still is noticed by the other, though the link between them never ends."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from envs_server.client import Client, Offer
from envs_server.stop import Stop
from learner.serving.batching import free_running
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable
from learner.serving.server import Service
from seedrl.config import EnvironmentConfig, ServingConfig
from tests.patience import SECONDS, wait_until
from tests.system.processes import ROOT

_ENVIRONMENT = EnvironmentConfig(
    id="envs_server.envs.constant:make", arguments='{"shape": [4], "dtype": "float32"}'
)


def _serve(address: str) -> Service:
    config = ServingConfig(training_slots=2, evaluation_slots=0, bind=address)
    slots = SlotTable(training=2, evaluation=0, seed=3)
    serving = Serving(slots, page_steps=2, rule=free_running(0.001))
    service = Service(Hub(serving, _ENVIRONMENT), config)
    service.start()
    return service


def _answer(hub: Hub) -> bool:
    """Answers a batch, if one comes soon."""
    batch = hub.next_batch(["training"], timeout=0.1)
    if batch is not None:
        hub.answer(batch, np.zeros(len(batch.slots), np.int32))
    return batch is not None


@contextlib.contextmanager
def _process(*command: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, *command], cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


# A learner waits 20 seconds for the answer to a ping, an env server 2.
_NOTICED_SECONDS = 40.0


@pytest.mark.gate  # waits for the 20 seconds of the learner's ping
def test_a_frozen_env_server_loses_its_lease_and_comes_back(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    address = f"unix:{tmp_path}/learner"
    service = _serve(address)
    hub = service.hub
    with _process("-m", "envs_server", "--learner", address, "--num-envs", "2") as env_server:
        wait_until(lambda: _answer(hub))
        assert all(connection.link for connection in hub.connections())
        frozen = time.monotonic()
        os.kill(env_server.pid, signal.SIGSTOP)
        wait_until(lambda: not hub.connections())
        record_property("env_server_noticed_seconds", round(time.monotonic() - frozen, 2))
        assert time.monotonic() - frozen < _NOTICED_SECONDS
        while _answer(hub):
            pass
        os.kill(env_server.pid, signal.SIGCONT)
        wait_until(lambda: _answer(hub))
    service.stop(grace_seconds=0.0)


def test_a_frozen_learner_is_left_and_found_again(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    record_property: Callable[[str, object], None],
) -> None:
    caplog.set_level("INFO")
    address, stop = f"unix:{tmp_path}/learner", Stop()
    with _process("-m", "tests.system.test_frozen", address) as learner:
        client = Client(address, Offer(2, 1, ()), stop)
        thread = threading.Thread(target=client.run)
        thread.start()
        try:
            wait_until(lambda: _says(caplog, "connected:"))
            frozen = time.monotonic()
            os.kill(learner.pid, signal.SIGSTOP)
            wait_until(lambda: _says(caplog, "disconnected from the learner"))
            record_property("learner_noticed_seconds", round(time.monotonic() - frozen, 2))
            assert time.monotonic() - frozen < _NOTICED_SECONDS
            caplog.clear()
            os.kill(learner.pid, signal.SIGCONT)
            wait_until(lambda: _says(caplog, "connected:"))
        finally:
            stop.request()
            thread.join(SECONDS)
    assert not thread.is_alive()


def _says(caplog: pytest.LogCaptureFixture, beginning: str) -> bool:
    return any(message.startswith(beginning) for message in caplog.messages)


if __name__ == "__main__":
    _hub = _serve(sys.argv[1]).hub
    while True:
        _answer(_hub)
