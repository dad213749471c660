"""Every thread of a learner and of an env server fails in turn, as nobody expects."""

import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from seedrl.exit_codes import ExitCode
from tests.faults.dying_thread import RUNS
from tests.faults.watched_learner import FLAGS, events, newest_durable, start_env_servers
from tests.system.processes import UNHURRIED, Program, Programs, records, wait_for

pytestmark = [pytest.mark.gate, pytest.mark.timeout(1800)]
Record = Callable[[str, object], None]
_SAID = "InjectedError: what nobody expects"
# What a process has beside those that docs/architecture.md names: of gRPC, orbax and Python.
_OTHERS = ("Thread-", "asyncio_", "MainThread", "ThreadPoolExecutor-", "exit deadline")
_OTHERS += (
    "stream_",
    "reader",
    "np_type_handler",
    "array_type_handler",
    "write_metadata",
    "metadata_",
)
_R2D2 = ("cartpole_r2d2", *FLAGS)
_LOCK_STEP = (
    *(
        "--learning.schedule=deterministic",
        "--serving.training-slots=6",
        "--serving.evaluation-slots=0",
    ),
    *("--environment.vectorization=sync", "--replay.min-steps=96"),
)
_PPO = (
    *("cartpole_ppo", "--learning.schedule=synchronous", "--learning.batch-sequences=4"),
    *("--serving.training-slots=4", "--serving.evaluation-slots=2", "--agent.unroll=7"),
    *("--agent.minibatches=1", "--agent.network.head-sizes=8", "--evaluation.target-return=None"),
    *("--evaluation.episodes=2", "--logging.interval-seconds=0.1", "--logging.no-learning-curve"),
    *("--checkpoint.interval-seconds=0.2", *UNHURRIED),
)


class Fate(NamedTuple):
    """How a learner ends of which a thread has failed.

    Attributes:
      code: its exit code; None if it goes on until SIGTERM, and what it ends with then.
      is_saved: whether the state that it had then is saved.
      words: of a learner in which the thread is there.
      at_end: its exit code after SIGTERM, if it goes on.
    """

    code: ExitCode | None = ExitCode.INTERNAL
    is_saved: bool = True
    words: tuple[object, ...] = _R2D2
    at_end: ExitCode = ExitCode.OK


LEARNER = {
    "main": Fate(),
    "acting": Fate(is_saved=False),
    "learning": Fate(is_saved=False),
    "deterministic": Fate(is_saved=False, words=(*_R2D2, *_LOCK_STEP)),
    "synchronous": Fate(is_saved=False, words=_PPO),
    "compile": Fate(is_saved=False),
    "watch": Fate(),
    "links": Fate(),
    "saver": Fate(code=None, is_saved=False, at_end=ExitCode.INTERNAL),
    "status": Fate(),
    "status's looks": Fate(code=None),
    "health": Fate(code=None),
}
ENV_SERVER = ("env server", "hang limit", "stop")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with Programs(tmp_path) as started:
        yield started


def unexpected_threads(flag: Path) -> set[str]:
    """Those that no line of this file brings to an end."""
    names = flag.with_suffix(".threads").read_text().splitlines()
    known = (*RUNS, *_OTHERS)
    return {name for name in names if not name.startswith(known)}


def goes_on(learner: Program, workdir: Path) -> None:
    """Waits until it has acted and learned after now."""
    before = records(workdir)[-1]
    wait_for(lambda: records(workdir)[-1]["updates"] > before["updates"], learner)
    wait_for(lambda: records(workdir)[-1]["env_steps"] > before["env_steps"], learner)


@pytest.mark.parametrize("thread", LEARNER)
def test_no_thread_of_a_learner_dies_alone(
    thread: str, programs: Programs, tmp_path: Path, record_property: Record
) -> None:
    fate, workdir, flag = LEARNER[thread], tmp_path / "run", tmp_path / "now"
    address = f"unix:{tmp_path}/learner"
    with socket.create_server(("127.0.0.1", 0)) as free:
        health = f"127.0.0.1:{free.getsockname()[1]}"
    words = (*fate.words, "--workdir", workdir, "--bind", address, "--logging.health-bind", health)
    learner = programs("tests.faults.dying_thread", thread, flag, "learner", *words)
    start_env_servers(programs, address)
    if thread == "compile":
        flag.touch()
    else:
        wait_for(lambda: newest_durable(workdir) > 0, learner)
        flag.touch()
    start, durable = time.monotonic(), newest_durable(workdir)
    if fate.code is None:
        _shows(thread, workdir, health, learner)
        goes_on(learner, workdir)
        learner.signal(signal.SIGTERM)
    code = learner.end()
    record_property(f"{thread}_end_seconds", round(time.monotonic() - start, 2))
    assert code == (fate.at_end if fate.code is None else fate.code), learner.stderr
    assert _SAID in learner.stderr
    assert newest_durable(workdir) >= durable
    if fate.is_saved:
        assert newest_durable(workdir) == records(workdir)[-1]["updates"] > 0
    assert unexpected_threads(flag) == set()


def _shows(thread: str, workdir: Path, health: str, learner: Program) -> None:
    """Waits until it can be seen that something is wrong."""
    if thread == "saver":
        wait_for(lambda: events(workdir, "save_failed"), learner)
    elif thread == "health":
        with pytest.raises(urllib.error.HTTPError, match="500"):
            urllib.request.urlopen(f"http://{health}/metrics")
        assert urllib.request.urlopen(f"http://{health}/healthz").status == 200
    wait_for(lambda: _SAID in learner.stderr, learner)


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
    assert env_server.end() == ExitCode.INTERNAL, env_server.stderr
    wait_for(lambda: events(workdir, "server_left"), learner)
    assert _SAID in env_server.stderr
    assert unexpected_threads(flag) == set()
    assert not learner.has_ended


def test_every_thread_is_brought_to_an_end() -> None:
    assert sorted(RUNS) == sorted((*LEARNER, *ENV_SERVER))
