"""How an env server ends when it is asked to, and returns to a learner that has gone."""

import dataclasses

import pytest

from envs_server.server_conformance import endings
from tests.envs_server.server_conformance.broken_rules import PLAN, broken_rules
from tests.envs_server.server_conformance.example_server import ExampleServer
from tests.patience import SECONDS

pytestmark = pytest.mark.usefixtures("quick")


class DiesOfSigterm(ExampleServer):
    def after_sigterm(self) -> int:
        return -15


class IgnoresSigterm(ExampleServer):
    def ask_to_end(self) -> None:
        pass


@pytest.mark.parametrize(
    ("server", "seconds", "text"),
    [
        (DiesOfSigterm, SECONDS, "expected exit code 0 after SIGTERM, got -15, the signal's own"),
        (IgnoresSigterm, 0.2, "expected its end within 0.2 seconds of SIGTERM"),
    ],
)
def test_who_does_not_end_well_when_asked_is_told_so(
    server: type[ExampleServer], seconds: float, text: str
) -> None:
    plan = dataclasses.replace(PLAN, quiet_seconds=seconds)
    assert broken_rules(server(), endings.asked_to_end, plan=plan) == {"asked-to-end": text}


def test_who_leaves_the_pace_to_grpc_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "_SILENT_SECONDS", SECONDS)
    monkeypatch.setattr(endings, "_LONGEST_SILENCE_SECONDS", 0.001)
    found = broken_rules(ExampleServer(), endings.returns_after_restart)
    assert list(found) == ["return-late"]
    assert found["return-late"].startswith("expected attempts to connect less than a second after")


def test_who_asks_again_at_once_has_no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "_SHORTEST_SUM_SECONDS", SECONDS)
    found = broken_rules(ExampleServer(), endings.back_off)
    assert found["back-off"].startswith("expected random pauses below bounds of 0.1")
