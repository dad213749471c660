"""How env servers and slots are fitted to each other, and the child process that runs them."""

import dataclasses
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from envs_server.options import read_options
from learner.processes import env_servers
from learner.processes.env_servers import Child, EnvServers, Fleet
from seedrl.config import Config, EnvironmentConfig, LaunchConfig, ServingConfig
from seedrl.errors import ConfigError
from tests.patience import SECONDS, wait_until


def config(*, training: int = 32, evaluation: int = 20, **launch: int) -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=None,
        serving=ServingConfig(training_slots=training, evaluation_slots=evaluation),
        launch=LaunchConfig(**launch),
    )


@pytest.mark.parametrize(
    ("given", "fleet"),
    [
        ({"training": 33}, Fleet(2, 27, 2)),
        ({"training": 1, "env_servers": 4}, Fleet(4, 6, 2)),
        ({"env_servers": 4}, Fleet(4, 13, 2)),
        ({"env_servers": 3, "envs_per_server": 26}, Fleet(3, 26, 2)),
        ({"envs_per_server": 30}, Fleet(2, 30, 2)),
        # No group is empty, and no env server is without a slot.
        ({"training": 1, "evaluation": 0, "env_servers": 2, "groups": 4}, Fleet(1, 1, 4)),
    ],
)
def test_env_servers_fill_the_slots(given: dict[str, int], fleet: Fleet) -> None:
    assert env_servers.plan(config(**given)) == fleet


def test_the_env_servers_understand_their_command_line(tmp_path: Path) -> None:
    given = config()
    given = dataclasses.replace(
        given,
        environment=EnvironmentConfig(id="own:make", wrappers=("own:wrap", "own:wrap")),
        serving=dataclasses.replace(given.serving, bind="unix:/x/y", token_file="/t"),
        launch=LaunchConfig(local_link=False),
    )
    words = env_servers.command(Fleet(3, 7, 2), given, logs=tmp_path / "run" / "logs")
    options = read_options(words[4:])
    assert (options.processes, options.num_envs, options.groups) == (3, 7, 2)
    assert (options.learner, options.token_file) == ("unix:/x/y", Path("/t"))
    assert options.allow_env == ("own:make", "own:wrap") and not options.local_link
    assert options.logs == tmp_path / "run" / "logs" and options.logs.is_dir()


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("", 0)],
)
def test_the_exit_code_is_that_of_a_shell(code: str, expected: int) -> None:
    exits: queue.SimpleQueue[int] = queue.SimpleQueue()
    child = Child(python(code), {}, on_exit=exits.put)
    assert exits.get(timeout=SECONDS) == expected
    child.end(0)


# Parent and child hold the pipe open; its reader sees the end when both are dead.
_HAS_A_CHILD = (
    "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "f = open({!r}, 'w'); os.fork() {}; f.write('up'); f.flush()\nwhile True: signal.pause()"
)


@pytest.mark.parametrize("ends_itself", [True, False])
def test_what_a_child_has_started_is_killed_with_it(tmp_path: Path, ends_itself: bool) -> None:
    os.mkfifo(alive := tmp_path / "alive")
    leaves = "and (f.close(), os._exit(0))" if ends_itself else ""
    child = Child(python(_HAS_A_CHILD.format(str(alive), leaves)), {})
    with alive.open() as reader:
        assert ends_itself or reader.read(2) == "up"
        if not ends_itself:
            child.end(0)
        reader.read()
    assert child.has_ended(SECONDS)
    child.send(signal.SIGTERM)  # nothing of that number is ours any more


def test_no_child_outlives_a_killed_parent(tmp_path: Path) -> None:
    os.mkfifo(alive := tmp_path / "alive")
    code = f"import signal; f = open({str(alive)!r}, 'w'); f.write('up'); f.flush(); signal.pause()"
    parent = (
        "import signal, sys\n"
        "from learner.processes.env_servers import Child\n"
        f"Child([sys.executable, '-I', '-S', '-c', {code!r}], {{}})\n"
        "signal.pause()\n"
    )
    paths = os.pathsep.join(filter(None, sys.path))
    with (
        subprocess.Popen([sys.executable, "-c", parent], env={"PYTHONPATH": paths}) as process,
        alive.open() as reader,
    ):
        assert reader.read(2) == "up"
        process.kill()
        assert reader.read() == ""


def test_env_servers_that_are_refused_have_failed_and_their_reason_is_not_printed_twice(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = "import sys; print('a\\npython -m envs_server: error: no such id', file=sys.stderr); "
    code += "sys.exit(2)"
    lines: list[str] = []
    with EnvServers(python(code), on_failure=lines.append, variables={}) as started:
        wait_until(lambda: not started._thread.is_alive(), "it never ended")
        assert lines == ["no such id"]
        with pytest.raises(ConfigError):
            started.raise_failure()
    assert capfd.readouterr().err == "a\n"


# By SIGTERM it ends with 0, as it does when training is over.
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_ended_parent_of_env_servers_is_restarted_and_one_that_is_to_end_has_not_failed(
    how: signal.Signals, tmp_path: Path
) -> None:
    code = "import os, signal; signal.signal(signal.SIGTERM, lambda *_: os._exit(0)); "
    code += f"open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w'); signal.pause()"
    words = python(code)
    with EnvServers(words, variables={}, restart_seconds=0.0, over_seconds=0.0) as started:
        for number in (1, 2):
            wait_until(lambda number=number: len(list(tmp_path.iterdir())) == number)  # type: ignore[misc]
            if number == 1:
                started._child.send(how)
    assert not started._thread.is_alive()
    started.raise_failure()


def test_a_fleet_is_being_released_until_its_env_servers_have_ended() -> None:
    may_end = threading.Event()

    class Started:
        def __enter__(self) -> "Started":
            return self

        def __exit__(self, *_: object) -> None:
            may_end.wait(SECONDS)

    def build(fleet: Fleet, folder: str) -> Any:
        return Started()

    with env_servers.Fleets(Fleet(1, 4, 2), build, most=4) as fleets:
        fleets.resize(2)
        before = fleets.is_releasing
        fleets.resize(1)
        meanwhile = fleets.is_releasing
        may_end.set()
        wait_until(lambda: not fleets.is_releasing)
    assert (before, meanwhile) == (False, True)
