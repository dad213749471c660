"""The mirror at Weights & Biases, with a stand-in of its client."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learner.report.metrics import Metrics, WeightsAndBiases
from tests.patience import SECONDS


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """All that the client is asked for, in order."""
    calls: list[tuple[str, Any]] = []

    def record(name: str) -> Any:
        return lambda *values, **fields: calls.append((name, values[0] if values else fields))

    run = SimpleNamespace(
        log=record("log"),
        config=SimpleNamespace(update=record("config")),
        define_metric=record("metric"),
        finish=record("finish"),
    )

    def init(**fields: Any) -> Any:
        calls.append(("init", {name: fields[name] for name in ("project", "name", "id", "resume")}))
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=dict))
    return calls


def test_it_gets_the_scalars_of_tensorboard_and_the_configuration(
    client: list[tuple[str, Any]], tmp_path: Path
) -> None:
    workdir = tmp_path / "mine"
    workdir.mkdir()
    for _ in range(2):  # a run, and its next session
        metrics = Metrics(workdir, mirrors=[WeightsAndBiases("project", workdir, {"seed": 3})])
        metrics.gauge("replay_ratio", 0.5)
        metrics.flush(env_steps=7, updates=2)
        metrics.close()
    calls = dict(client)
    identity = (workdir / "wandb_id.txt").read_text().strip()
    named = {"project": "project", "name": "mine", "id": identity, "resume": "allow"}
    assert client[0][1] == calls["init"] == named
    assert calls["config"] == {"seed": 3} and "finish" in calls
    logged = calls["log"]
    assert logged.pop("system/elapsed_seconds") >= 0
    assert logged == {
        "balance/replay_ratio": 0.5, "balance/env_steps": 7.0, "balance/updates": 2.0
    }  # fmt: skip


def test_a_service_that_refuses_ends_nothing(
    client: list[tuple[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("not logged in")

    monkeypatch.setattr(sys.modules["wandb"], "init", refuse)
    mirror = WeightsAndBiases("project", tmp_path, {})
    metrics = Metrics(tmp_path, mirrors=[mirror])
    mirror._thread.join(SECONDS)
    metrics.flush(env_steps=1, updates=0)
    assert mirror._queue.empty()  # nobody would ever take it
    metrics.close()
    (message,) = caplog.messages
    assert "not logged in" in message
