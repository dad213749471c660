"""The lobby: waits that end when they should, without any transport."""

import threading
import time

import pytest

from learner.lobby import Lobby
from learner.serving import Serving
from learner.slots import SlotTable
from seedrl.config import EnvironmentConfig

_SECONDS = 20.0


@pytest.fixture
def lobby() -> Lobby:
    slots = SlotTable(training=4, evaluation=2, seed=3)
    serving = Serving(slots, page_steps=2, deadline_seconds=0.005)
    return Lobby(serving, EnvironmentConfig(id="Some-v0"))


def test_a_wake_before_the_wait_is_not_lost(lobby: Lobby) -> None:
    lobby.wake()
    arguments = {"is_training_allowed": True, "is_evaluation_allowed": True}
    assert lobby.next_batch(**arguments, timeout=1e6) is None
    start = time.monotonic()
    assert lobby.next_batch(**arguments, timeout=0.02) is None
    assert time.monotonic() - start >= 0.02  # it counted once


def test_a_wake_ends_a_wait(lobby: Lobby) -> None:
    done = threading.Event()

    def wait() -> None:
        lobby.next_batch(is_training_allowed=False, is_evaluation_allowed=False, timeout=1e6)
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    lobby.wake()
    assert done.wait(_SECONDS)
