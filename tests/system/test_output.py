"""A run whose output reaches nobody.

The run has a dict of observations with action masks, and one env server, over gRPC. The disk of its
log is full, and the reader of its results has gone.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from learner.cli.main import main
from seedrl import policy
from seedrl.checkpoints import latest
from tests import own_process, started
from tests.masked_walk import counted, taxi_apart
from tests.patience import SECONDS, wait_until
from tests.system import processes
from tests.system.processes import SMALLEST, TRAIN, UNHURRIED

# What a run reports: test_small_run.py. Masks: tests/seedrl/agents/test_masks.py, test_policy.py.
pytestmark = [
    pytest.mark.gate,
    pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full"),
]

# With these an update was reported, and an episode of either role.
LAST_TO_COME = {"loss", "length/training"}
ENVIRONMENT = "tests.masked_walk:taxi_apart"


@contextmanager
def running(
    workdir: Path, stdout: int, stderr: int, *flags: object
) -> Iterator["subprocess.Popen[str]"]:
    """A run that writes what it says to these files; killed at the end if it still runs."""
    words = [*SMALLEST, *UNHURRIED, "--env-servers", 1, *flags]
    with started.start(
        [*TRAIN, "cartpole_r2d2", "--workdir", *map(str, [workdir, *words])],
        stdout=stdout,
        stderr=stderr,
        cwd=workdir.parent,
        variables=started.variables(),
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def names(workdir: Path, kind: str) -> set[str]:
    """Of the fields of all lines of a kind."""
    return {name for line in processes.records(workdir, kind) for name in line}


def has_reported_all(workdir: Path) -> bool:
    return names(workdir, "metrics") >= LAST_TO_COME and all(
        names(workdir, kind) for kind in ("evaluation", "checkpoint")
    )


def saved_updates(workdir: Path) -> int:
    found = latest(workdir / "checkpoints")
    return 0 if found is None else found.step


@pytest.fixture(scope="module")
def unlogged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that nobody can hear, whose terminal goes when it has reported all."""
    folder = tmp_path_factory.mktemp("unlogged")
    workdir = folder / "run"
    arguments = json.dumps({"counts": str(folder / "counts")})
    flags = ("--environment.id", ENVIRONMENT, "--environment.arguments", arguments)
    flags = (*flags, "--launch.no-local-link", "--checkpoint.interval-seconds=0.5")
    read_end, write_end = os.pipe()
    os.close(read_end)
    with (
        os.fdopen(write_end, "w") as pipe,
        open("/dev/full", "w") as full,
        running(workdir, pipe.fileno(), full.fileno(), *flags) as run,
    ):
        wait_until(lambda: run.poll() is not None or has_reported_all(workdir), pause_seconds=0.05)
        run.send_signal(signal.SIGHUP)
        assert run.wait(SECONDS) == 0
    return workdir


def test_a_run_that_nobody_can_hear_is_saved_when_its_terminal_goes(unlogged: Path) -> None:
    """It learns from a dict of observations."""
    assert saved_updates(unlogged) >= processes.records(unlogged)[-1]["updates"] > 0


def test_taxi_gets_no_forbidden_action_in_training_evaluated_or_loaded(
    unlogged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = unlogged.parent / "counts"
    steps, forbidden = counted(counts)
    assert steps > 100 and forbidden == 0
    evaluate = ["evaluate", str(unlogged), "--episodes", "4", "--env-servers", "1", "--stochastic"]
    capsys.readouterr()
    allowed = (ENVIRONMENT, UNHURRIED[0].partition("=")[2])
    with own_process.restored():
        assert main([*evaluate, "--json", "--allow", *allowed]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == len(result["returns"]) == 4
    assert result["mean"] == pytest.approx(sum(result["returns"]) / 4)
    played, env = policy.load(unlogged, epsilon=1.0), taxi_apart(str(tmp_path / "loaded"))
    assert result["updates"] == played.step
    assert counted(counts)[0] > steps and counted(counts)[1] == 0

    (observation, info), carry, is_over = env.reset(seed=1), played.initial_carry(), False
    while not is_over:
        action, carry = played({**observation, "action_mask": info["action_mask"]}, carry)
        observation, _, terminated, truncated, info = env.step(action)
        is_over = terminated or truncated
    assert counted(tmp_path / "loaded")[1] == 0
