"""The two pages, over a real port."""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from learner.report.health import Health
from seedrl.errors import AddressInUseError
from tests.learner.report.test_terminal import STATUS
from tests.patience import SECONDS


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def health(now: list[float]) -> Iterator[Health]:
    with contextlib.closing(Health("127.0.0.1:0", lambda: now[0])) as health:
        yield health


def _get(health: Health, path: str) -> tuple[int, str]:
    try:
        url = f"http://127.0.0.1:{health.port}{path}"
        with urllib.request.urlopen(url, timeout=SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _well(health: Health) -> tuple[int, Any]:
    code, text = _get(health, "/healthz")
    return code, json.loads(text)["state"]


def test_it_is_well_while_its_status_is_fresh_and_it_does_not_end(
    health: Health, now: list[float]
) -> None:
    assert _well(health) == (200, "starting")
    health.look(STATUS)
    assert _well(health) == (200, "training")
    now[0] = 20.0
    assert _well(health) == (503, "hangs")
    health.look(replace(STATUS, state="stopping"))
    assert _well(health) == (503, "stopping")


def test_numbers_are_those_of_the_status(health: Health) -> None:
    assert "seedrl_env_steps" not in _get(health, "/metrics")[1]
    health.look(STATUS)
    code, text = _get(health, "/metrics")
    lines = text.splitlines()
    assert code == 200
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
    assert _get(health, "/")[0] == 404


def test_a_port_that_is_taken_is_named(health: Health) -> None:
    with pytest.raises(AddressInUseError) as caught:
        Health(f"127.0.0.1:{health.port}")
    assert "logging.health_bind" in str(caught.value)
