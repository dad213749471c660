"""A real service, and the ways that messages take to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.serving.server import Service
from tests.learner.serving.scripted_env_server import Client, served


@pytest.fixture(params=["stream", "link"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds whichever way messages take."""
    monkeypatch.setattr(Client, "offers_link", request.param == "link")


@pytest.fixture(params=["unix", "tcp"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with served(f"unix:{tmp_path}/socket" if request.param == "unix" else "127.0.0.1:0") as service:
        yield service


@pytest.fixture
def unix_service(tmp_path: Path) -> Iterator[Service]:
    with served(f"unix:{tmp_path}/socket") as service:
        yield service
