"""A real service, and the ways that messages take to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.serving import server
from learner.serving.server import Service
from tests.learner.serving.scripted_env_server import Client, served
from tests.patience import SECONDS


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine Hello may come later than a learner waits for it."""
    monkeypatch.setattr(server, "HELLO_SECONDS", SECONDS)


@pytest.fixture(params=["stream", "link"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything holds whichever way messages take."""
    way: str = request.param
    monkeypatch.setattr(Client, "offers_link", way == "link")
    return way


@pytest.fixture
def service(way: str, tmp_path: Path) -> Iterator[Service]:
    """On a port where all messages take gRPC."""
    with served("127.0.0.1:0" if way == "stream" else f"unix:{tmp_path}/socket") as service:
        yield service


@pytest.fixture
def unix_service(tmp_path: Path) -> Iterator[Service]:
    with served(f"unix:{tmp_path}/socket") as service:
        yield service
