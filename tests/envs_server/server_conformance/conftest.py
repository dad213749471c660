"""A check without its pauses."""

import pytest

from envs_server.server_conformance import endings


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes time only because of pauses takes none."""
    monkeypatch.setattr(endings, "_CLOSED_SECONDS", 0.0)
    monkeypatch.setattr(endings, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(endings, "_REFUSALS", 2)
    monkeypatch.setattr(endings, "_SHORTEST_SUM_SECONDS", 0.0)
