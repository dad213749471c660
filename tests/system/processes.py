"""Processes of the real programs, watched from outside: by their files, exit codes and /proc."""

import contextlib
import functools
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from learner.cli.train import main as run_learner
from tests import own_process, started
from tests.patience import SECONDS, wait_until

ROOT = Path(__file__).parents[2]
TRAIN = ("learner.cli.main", "train")

# A network and a replay that compile and learn in no time. Learning needs 64 steps; pages have 8
# rows, so that hardly any stream ends with a full one; sequences reach over two pages; the replay
# wraps around soon. All tests take the same shapes, which are compiled once.
_TINY = {
    "serving.training-slots": 4,
    "serving.evaluation-slots": 2,
    "agent.network.torso-sizes": 8,
    "agent.network.core": "none",
    "agent.network.head-sizes": 8,
    "agent.burn-in": 2,
    "agent.unroll": 12,
    "agent.n-steps": 2,
    "agent.stride": 8,
    "agent.target-update-interval": 7,
    "replay.min-steps": 64,
    "replay.capacity-steps": 256,
    "learning.batch-sequences": 4,
    "evaluation.target-return": None,
    "evaluation.interval-steps": 1,
    "evaluation.episodes": 2,
    "logging.interval-seconds": 0.25,
}
TINY = (
    *(f"--{field}={value}" for field, value in _TINY.items()),
    "--logging.no-learning-curve",
)
# For tests to which the number of streams and memory do not matter: one batch shape for both roles
# are fewer and smaller programs, whose tracing is most of what a short run costs.
SMALLEST = (
    *TINY,
    *("--serving.training-slots=1", "--serving.evaluation-slots=1"),
)
# For runs that go on until something has happened.
UNHURRIED = ("--environment.wrappers=tests.system.unhurried:Unhurried",)

# What a learner says on stderr while all is well.
PROGRESS = re.compile(
    r"learner: .*, serving |observation: |replay: \d+ MiB on each device|\d+:\d\d:\d\d  "
)

Found = TypeVar("Found")


class Program:
    """One process; stdout and stderr are files."""

    def __init__(self, output: Path, arguments: tuple[str, ...], variables: dict[str, str]):
        self.stdout_path, self.stderr_path = output.with_suffix(".out"), output.with_suffix(".err")
        # The threads are those that the tests' four devices need; these programs have one.
        inherited = started.variables()
        inherited.pop("PJRT_NPROC", None)
        with self.stdout_path.open("wb") as stdout, self.stderr_path.open("wb") as stderr:
            self.process = started.start(
                arguments,
                cwd=output.parent,
                variables={**inherited, **variables},
                stdout=stdout,
                stderr=stderr,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def stdout(self) -> str:
        return self.stdout_path.read_text()

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Waits for its end; its exit code, that of signal n being -n."""
        return self.process.wait(SECONDS)


def told(
    capsys: pytest.CaptureFixture[str],
    *words: object,
    main: Callable[[list[str]], int] = run_learner,
) -> tuple[int, str]:
    """Exit code and the one line beside its progress, of a learner in this process.

    It ends before it trains.
    """
    capsys.readouterr()
    with own_process.restored():
        code = main(list(map(str, words)))
    lines = [line for line in capsys.readouterr().err.splitlines() if not PROGRESS.match(line)]
    assert len(lines) == 1, lines
    return code, lines[0]


class Programs:
    """Starts programs, and kills at the end those that still run."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._started: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._started:
            for pid in (*descendants(program.pid), program.pid):
                if is_running(pid):
                    os.kill(pid, 9)
            program.process.wait()

    def __call__(self, *arguments: object, **variables: str) -> Program:
        """Runs a module with arguments: `programs("learner", "cartpole_r2d2", ...)`."""
        output = self._folder / f"program_{len(self._started)}"
        program = Program(output, tuple(map(str, arguments)), variables)
        self._started.append(program)
        return program


def wait_for(what: Callable[[], Found | None], program: Program) -> Found:
    """The first value of `what()` that is true, while `program` runs."""
    deadline = time.monotonic() + SECONDS
    while not (found := what()):
        assert program.process.poll() is None, f"it ended: {program.stderr}"
        assert time.monotonic() < deadline, f"it never happened: {program.stderr}"
        time.sleep(0.05)
    return found


def wait_until_gone(pids: set[int]) -> None:
    wait_until(lambda: not any(map(is_running, pids)), f"some of {pids} never end")


def records(
    workdir: Path, kind: str = "metrics", name: str = "metrics.jsonl"
) -> list[dict[str, Any]]:
    """Lines of a kind of a run's file, oldest first, but those that a full disk or a kill cut."""
    path = workdir / name
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if line["kind"] == kind]


events = functools.partial(records, name="events.jsonl")


def connections(log: Path) -> int:
    """How many times an env server was accepted, by its log."""
    return log.read_text().count("connected: ") if log.exists() else 0


def descendants(pid: int, module: str = "") -> set[int]:
    """Running processes that `pid` started, directly or not, with `module` in their command."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    while new := {child for child, parent in parents.items() if parent in {pid, *found}} - found:
        found |= new
    return {child for child in found if module in _command(child)}


def env_servers(run: int) -> set[int]:
    """The env servers of a run on this machine, without the process that starts them again."""
    found = descendants(run, "envs_server")
    parents = {int(fields[1]) for pid in found if (fields := _stat(pid))}
    return found - parents or found


def is_running(pid: int) -> bool:
    """Whether there is such a process that is more than an exit code waiting to be read."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def _stat(pid: int) -> list[str]:
    """State and parent's number, then more; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
