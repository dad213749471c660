"""Every thread of a learner and of an env server fails in turn, as nobody expects."""

import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.faults.dying_thread import ENV_SERVER, LEARNER
from tests.faults.watched_learner import FLAGS, newest_durable, start_env_servers
from tests.system.processes import UNHURRIED, Program, Programs, events, records, wait_for

pytestmark = [pytest.mark.gate, pytest.mark.timeout(1800)]
_R2D2 = ("cartpole_r2d2", *FLAGS)
_CONFIGS = {
    "r2d2": _R2D2,
    "ppo": (
        *("cartpole_ppo", "--learning.schedule=synchronous", "--learning.batch-sequences=4"),
        *("--serving.training-slots=4", "--serving.evaluation-slots=2", "--agent.unroll=7"),
        *("--agent.minibatches=1", "--agent.network.head-sizes=8"),
        *("--evaluation.target-return=None", "--evaluation.episodes=2"),
        *("--logging.interval-seconds=0.1", "--logging.no-learning-curve"),
        *("--checkpoint.interval-seconds=0.2", *UNHURRIED),
    ),
}


@pytest.mark.parametrize("thread", LEARNER)
def test_no_thread_of_a_learner_dies_alone(thread: str, programs: Programs, tmp_path: Path) -> None:
    fate, workdir, flag = LEARNER[thread], tmp_path / "run", tmp_path / "now"
    address = f"unix:{tmp_path}/learner"
    with socket.create_server(("127.0.0.1", 0)) as free:
        health = f"127.0.0.1:{free.getsockname()[1]}"
    words = ("--workdir", workdir, "--bind", address, "--logging.health-bind", health)
    config = (*_CONFIGS[fate.config], *words)
    learner = programs("tests.faults.dying_thread", thread, flag, "learner", *config)
    start_env_servers(programs, address)
    if thread != "compile":
        wait_for(lambda: newest_durable(workdir) > 0, learner)
    flag.touch()
    durable = newest_durable(workdir)
    if fate.goes_on:
        _shows(thread, workdir, health, learner)
        _learns_on(learner, workdir)
        learner.signal(signal.SIGTERM)
    assert learner.end() == fate.code, learner.stderr
    assert "InjectedError" in learner.stderr
    assert newest_durable(workdir) >= durable
    if fate.is_saved:
        assert newest_durable(workdir) == records(workdir)[-1]["updates"] > 0


def _shows(thread: str, workdir: Path, health: str, learner: Program) -> None:
    """Waits until it can be seen that something is wrong."""
    if thread == "saver":
        wait_for(lambda: events(workdir, "save_failed"), learner)
    elif thread == "health":
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{health}/metrics")
    wait_for(lambda: "InjectedError" in learner.stderr, learner)


def _learns_on(learner: Program, workdir: Path) -> None:
    """Waits until it has acted and learned after now."""
    before = records(workdir)[-1]
    for name in ("updates", "env_steps"):
        wait_for(lambda n=name: records(workdir)[-1][n] > before[n], learner)


@pytest.mark.parametrize("thread", ENV_SERVER)
def test_no_thread_of_an_env_server_dies_alone(
    thread: str, programs: Programs, tmp_path: Path
) -> None:
    workdir, flag, address = tmp_path / "run", tmp_path / "now", f"unix:{tmp_path}/learner"
    learner = programs("learner", *_R2D2, "--workdir", workdir, "--bind", address)
    words = ("--learner", address, "--num-envs", 6, "--allow-env", "tests.*")
    env_server = programs("tests.faults.dying_thread", thread, flag, "envs_server", *words)
    wait_for(lambda: events(workdir, "server_joined"), learner)
    flag.touch()
    if thread == "stop":
        env_server.signal(signal.SIGTERM)
    assert env_server.end() == ENV_SERVER[thread].code, env_server.stderr
    wait_for(lambda: events(workdir, "server_left"), learner)
    assert "InjectedError" in env_server.stderr
    assert not learner.has_ended
