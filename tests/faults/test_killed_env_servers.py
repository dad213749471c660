"""Env servers of a run are killed again and again: it goes on, and they are back soon."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from learner.serving.ledger import AT_REST, residues
from seedrl.exit_codes import ExitCode
from tests.faults.scale import VARIABLE, scaled
from tests.faults.watched_learner import returns
from tests.system.processes import (
    TINY,
    TRAIN,
    UNHURRIED,
    Programs,
    env_servers,
    events,
    records,
    wait_for,
)

pytestmark = [
    pytest.mark.gate,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]
_KILLS, _NOTICED_SECONDS, _BACK_SECONDS = 60, 0.5, 5.0


def test_env_servers_that_are_killed_are_noticed_at_once_and_soon_back(
    programs: Programs, tmp_path: Path
) -> None:
    workdir, chooser = tmp_path / "run", random.Random(0)
    noticed, back = list[float](), list[float]()
    run = programs(
        *(*TRAIN, "cartpole_r2d2", "--workdir", workdir, *TINY, *UNHURRIED),
        "--env-servers=2",
    )
    wait_for(lambda: any(line["updates"] > 0 for line in records(workdir)), run)
    for number in range(scaled(_KILLS)):
        victim = chooser.choice(sorted(env_servers(run.pid)))
        killed = time.time()
        os.kill(victim, signal.SIGKILL)
        left = wait_for(lambda n=number: events(workdir, "server_left")[n:], run)[0]
        returned = wait_for(lambda n=number: returns(workdir)[n:], run)[0]
        noticed.append(left["time_seconds"] - killed)
        back.append(returned["time_seconds"] - killed)
        time.sleep(chooser.uniform(0.0, 1.0))  # any place in an episode
    run.signal(signal.SIGTERM)
    assert run.end() == ExitCode.OK, run.stderr
    ledger = records(workdir, "ledger")[-1]
    rows = {name: number for name, number in ledger.items() if isinstance(number, int)}
    assert residues(rows, AT_REST) == []
    if VARIABLE not in os.environ:
        assert max(noticed) <= _NOTICED_SECONDS and max(back) <= _BACK_SECONDS
