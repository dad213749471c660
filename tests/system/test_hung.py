"""A real env server of which one environment hangs or ends it: that one is named, then left out."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from learner.launch.env_servers import Fleet, commands
from learner.launch.supervisor import Supervisor
from learner.reporting.env_servers import EnvServerRegistry, EnvServers
from learner.serving.batching import free_running
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable
from learner.serving.server import Service
from seedrl.config import EnvironmentConfig, ServingConfig
from tests.patience import wait_until
from tests.system.processes import ROOT

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
        Hub(serving, environment, attendance=EnvServerRegistry(training_slots=3)), config
    )
    service.start()
    return service


def _steps_without_one(hub: Hub) -> EnvServers:
    """Acts until two batches came while one environment was quarantined."""

    def goes_on_without() -> bool:
        batch = hub.next_batch(["training"], timeout=0.1)
        if batch is not None:
            hub.answer(batch, np.zeros(len(batch.slots), np.int32))
        return batch is not None and hub.env_servers().quarantined == 1

    wait_until(goes_on_without, pause_seconds=0)
    wait_until(goes_on_without, pause_seconds=0)
    return hub.env_servers()


@pytest.mark.parametrize(
    "options",
    [["--groups", "1"], pytest.param(["--groups", "2", "--group-threads"], marks=pytest.mark.gate)],
)
def test_an_environment_that_hangs_is_named_ended_and_left_out_in_the_same_process(
    tmp_path: Path, options: list[str]
) -> None:
    address, log = f"unix:{tmp_path}/learner", tmp_path / "log"
    service = _serve(address, _environment(tmp_path / "claim", "hangs"))
    hub = service.hub
    command = [sys.executable, "-m", "envs_server", "--learner", address, "--num-envs", "3"]
    command += ["--allow-env", _ID, *options]
    with (
        log.open("wb") as stderr,
        subprocess.Popen(command, cwd=ROOT, stderr=stderr, env=dict(os.environ)) as env_server,
    ):
        try:
            found = _steps_without_one(hub)
        finally:
            env_server.kill()
    service.stop(grace_seconds=0.0)
    (server, *_) = found.servers
    assert server.name.endswith(f":{env_server.pid}"), "the process has the same number"
    assert (found.failures, found.quarantined, server.environments) == (2, 1, 2)
    group = int(options[1]) - 1
    hung = f"environment 2 (slot 2), step 1 of group {group}: it hangs for 0.5 s (serving.step_dea"
    assert server.last_failure.startswith(hung)
    assert log.read_text().count(hung) == 2
    assert "environment 2 is quarantined after failure 2 within an hour" in log.read_text()


@pytest.mark.parametrize(
    "fault, how",
    [
        ("crashes", "by SIGSEGV"),
        ("exits", "with exit code 0"),
        pytest.param("locks", "by SIGVTALRM, for it kept", marks=pytest.mark.gate),
    ],
)
def test_an_environment_that_ends_the_process_is_named_and_left_out_by_the_next_ones(
    tmp_path: Path, fault: str, how: str
) -> None:
    address, environment = f"unix:{tmp_path}/learner", _environment(tmp_path / "claim", fault)
    service = _serve(address, environment)
    fleet = Fleet(num_servers=1, num_envs=3, num_groups=1)
    (command,) = commands(fleet, environment, address=address, logs=tmp_path)
    said: list[str] = []
    with Supervisor([command], restarts=10, say=said.append) as supervisor:
        waiting = threading.Thread(target=supervisor.wait)
        waiting.start()
        try:
            found = _steps_without_one(service.hub)
        finally:
            supervisor.stop()
            waiting.join()
    service.stop(grace_seconds=0.0)
    assert command.log is not None
    log = command.log.read_text()
    # The first is nobody's: only then is noted who is at work.
    assert len(said) == 3 and all("is started again" in line for line in said)
    blamed = f"environment 2 has ended the process before, {how}"
    assert log.count(blamed) == 2
    assert f"environment 2 is quarantined after failure 2 within an hour: {blamed}" in log
    assert [server.environments for server in found.servers][-1] == 2
