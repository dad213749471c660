"""A learner is killed again and again, some thirty times inside a save, and resumes each time."""

import functools
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.faults.scale import scaled
from tests.faults.watched_learner import (
    is_saving,
    newest_durable,
    seconds_until_all_are_back,
    start_env_servers,
    start_learner,
)
from tests.system.processes import Program, Programs, events, wait_for

pytestmark = [
    pytest.mark.gate,
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]
KILLS, IN_SAVES = 100, 30


def wait_for_a_save(learner: Program, workdir: Path, before: int) -> None:
    """Until it has saved more than what it resumed from."""
    wait_for(lambda: newest_durable(workdir) > before, learner)


def kill(learner: Program, workdir: Path, chooser: random.Random, *, in_save: bool) -> bool:
    """Kills it; whether that was inside a save."""
    deadline = time.monotonic() + (5.0 if in_save else chooser.uniform(0.0, 0.3))
    while time.monotonic() < deadline and not (in_save and is_saving(workdir)):
        time.sleep(0.0005)
    os.kill(learner.pid, signal.SIGKILL)
    learner.end()
    return is_saving(workdir)


def test_every_killed_learner_resumes_from_its_last_durable_checkpoint(
    programs: Programs, tmp_path: Path
) -> None:
    workdir, address = tmp_path / "run", f"unix:{tmp_path}/learner"
    chooser = random.Random(0)
    wanted, wanted_in_saves = scaled(KILLS), scaled(IN_SAVES)
    kills = in_saves = 0
    back: list[float] = []
    start_env_servers(programs, address)
    while kills < wanted or in_saves < wanted_in_saves:
        durable, since = newest_durable(workdir), time.time()
        learner = start_learner(programs, workdir, address)
        if kills:
            event = wait_for(lambda n=kills: events(workdir, "resumed")[n - 1 :], learner)[0]
            assert event["fields"]["updates"] == durable
        all_are_back = functools.partial(seconds_until_all_are_back, workdir, kills + 1, since)
        back.append(wait_for(all_are_back, learner))
        wait_for_a_save(learner, workdir, durable)
        is_in_save = kill(learner, workdir, chooser, in_save=in_saves < wanted_in_saves)
        kills, in_saves = kills + 1, in_saves + is_in_save
        assert newest_durable(workdir) > durable
    assert max(back[1:] or back) <= 2.0
