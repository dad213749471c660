"""A real env server of which one environment hangs: another process takes its place."""

import json
from pathlib import Path

import numpy as np
import pytest

from learner.report.env_servers import EnvServerRegistry
from learner.serving.batching import free_running
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable
from learner.serving.server import Service
from seedrl.config import EnvironmentConfig, ServingConfig
from tests import started
from tests.patience import SECONDS, wait_until

_ID = "tests.faults.bad_environment:make"


def _environment(claim: Path, fault: str) -> EnvironmentConfig:
    arguments = {"claim": str(claim), "fault": fault, "per_server": 3, "at_step": 1}
    return EnvironmentConfig(id=_ID, arguments=json.dumps(arguments))


def _serve(address: str, environment: EnvironmentConfig) -> Service:
    config = ServingConfig(
        training_slots=3, evaluation_slots=0, bind=address, step_deadline_seconds=0.5
    )
    serving = Serving(
        SlotTable(training=3, evaluation=0, seed=3), page_steps=2, rule=free_running(0.001)
    )
    service = Service(
        Hub(serving, environment, registry=EnvServerRegistry(training_slots=3)), config
    )
    service.start()
    return service


def _names_of_two_that_stepped(hub: Hub) -> set[str]:
    """Acts until two processes have sent steps."""
    names: set[str] = set()

    def have_stepped() -> bool:
        batch = hub.next_batch(["training"], timeout=0.1)
        if batch is not None:
            hub.answer(batch, np.zeros(len(batch.slots), np.int32))
            names.update(server.name for server in hub.env_servers().servers)
        return len(names) >= 2

    wait_until(have_stepped, pause_seconds=0)
    return names


@pytest.mark.parametrize("fault", ["hangs", pytest.param("locks", marks=pytest.mark.gate)])
def test_an_env_server_that_hangs_is_restarted_and_serves(tmp_path: Path, fault: str) -> None:
    """One environment is bad in its first episode; the process that replaces it is served."""
    address = f"unix:{tmp_path}/learner"
    service = _serve(address, _environment(tmp_path / "claim", fault))
    words = ("--learner", address, "--num-envs", "3", "--allow-env", _ID, "--groups", "1")
    supervisor = started.env_server(*words, "--logs", str(tmp_path))
    try:
        names = _names_of_two_that_stepped(service.hub)
    finally:
        supervisor.terminate()
        _, said = supervisor.communicate(timeout=SECONDS)
    service.stop(grace_seconds=0.0)
    assert len(names) >= 2
    assert (supervisor.returncode, "is restarted" in said) == (0, True)
    log = (tmp_path / "env_server_0.log").read_text()
    assert "most recent call first" in log and "bad_environment.py" in log
