"""The page, over a real port."""

import contextlib
import urllib.request
from collections.abc import Iterator

import pytest

from learner.report.health import Health
from seedrl.errors import AddressInUseError
from tests.learner.report.test_terminal import STATUS
from tests.patience import SECONDS


@pytest.fixture
def health() -> Iterator[Health]:
    with contextlib.closing(Health("127.0.0.1:0")) as health:
        yield health


def _get(health: Health) -> str:
    url = f"http://127.0.0.1:{health.port}/metrics"
    with urllib.request.urlopen(url, timeout=SECONDS) as response:
        return str(response.read().decode())


def test_numbers_are_those_of_the_status(health: Health) -> None:
    assert "seedrl_env_steps" not in _get(health)  # a probe has its answer from the start
    health.look(STATUS)
    text = _get(health)
    lines = text.splitlines()
    for line in (
        "seedrl_env_steps 12345.0",
        "seedrl_evaluation_return 0.7",
        "seedrl_training_return 0.953",
        "seedrl_replay_ratio 3.996",
        "seedrl_env_servers 2.0",
        'seedrl_slots{role="training",state="waiting"} 4.0',
        'seedrl_slots{role="evaluation",state="hung"} 2.0',
    ):
        assert line in lines
    assert "seedrl_skipped_updates" not in text  # there is none


def test_a_port_that_is_taken_is_named(health: Health) -> None:
    with pytest.raises(AddressInUseError) as caught:
        Health(f"127.0.0.1:{health.port}")
    assert "logging.health_bind" in str(caught.value)
