"""Runs a run on Ray for real, on this machine: `python -m tests.tools.engines.ray`.

A cluster of three nodes (extra `ray`) trains CartPole. An env server, a node with env servers, the
learner and the learner's node are killed; then Ctrl-C is pressed, the same command resumes, and has
to reach its target.
Ends with 1 if anything is not as it should be, with 2 if Ray is not installed.
"""

import contextlib
import importlib.util
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from learner.checkpoints.run_records import played_rounds
from learner.extras.bench.measuring import machine_in_words
from seedrl import run_files
from tests.tools.engines.ray_nodes import Cluster, wait

COMMAND = (
    "cartpole_r2d2 --on ray --env-servers 3 --learner-cpus 2 --learner-gpus 1 "
    "--checkpoint.interval-seconds 5 "
    "--learning.total-steps 10000000"
)
TARGET = 475.0
_LEARNER, _ENV_SERVER = ("-m", "learner"), ("-m", "envs_server")
# Lines of progress, and what Ray prints of its own when a node is killed.
_NOISE = re.compile(r" steps \(|\(raylet\)|^\s|^$")
# Far more than each was seen to take on a machine that does other work.
_AGAIN_SECONDS = 1800.0


class Diary:
    """Prints what happens, with the seconds since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        """One line."""
        print(f"{time.monotonic() - self._start:6.0f} s  {text}", flush=True)


def status(run: Path) -> dict[str, Any]:
    """The run's status; empty while there is none."""
    try:
        found: dict[str, Any] = json.loads((run / run_files.STATUS).read_text())
    except (OSError, ValueError):
        return {}
    return found


def progress(run: Path) -> str:
    """How far the run is, in words."""
    found = status(run)
    return f"{found['updates']} updates, {found['env_steps']} steps"


class Launcher:
    """Owns a `seedrl launch` of this machine, as if a terminal had started it."""

    def __init__(self, log: Path, *words: str) -> None:
        command = [sys.executable, "-m", "learner.cli.main", "launch", *words]
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )

    def count(self, pattern: str) -> int:
        """How often this has been printed."""
        return len(re.findall(pattern, self.text()))

    def text(self) -> str:
        """What was printed."""
        return self._log.read_text(errors="replace")

    def await_more(self, what: str, pattern: str, before: int, more: int = 1) -> None:
        """Waits until the pattern has been printed so many times more."""
        wait(_AGAIN_SECONDS, what, lambda: self.count(pattern) >= before + more or self.is_over)
        assert self.count(pattern) >= before + more, what

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def interrupt(self) -> int:
        """What Ctrl-C does to a terminal's processes; returns the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(_AGAIN_SECONDS)


def main() -> int:
    """Returns the exit code."""
    if importlib.util.find_spec("ray") is None:
        print("expected ray, which is not installed; pip install 'seedrl[ray]'")
        return 2
    with tempfile.TemporaryDirectory(prefix="sr-") as name:
        folder = Path(name)
        (folder / "ray").mkdir()
        print(
            time.strftime("%Y-%m-%d"),
            machine_in_words(),
            f"ray {metadata.version('ray')}",
            sep=", ",
        )
        diary, logs = Diary(), [folder / f"{number}.log" for number in range(2)]
        found = False
        try:
            with Cluster(folder / "ray") as cluster:
                follow(cluster, folder, diary, logs)
            found = True
        except (AssertionError, TimeoutError, subprocess.TimeoutExpired) as error:
            diary.say(f"{type(error).__name__}: {error}")
        for log in filter(Path.exists, logs):
            lines = log.read_text(errors="replace").replace(name, "FOLDER").splitlines()
            print(f"\n{log.name}, without its lines of progress:\n")
            print(*(line for line in lines if not _NOISE.search(line)), sep="\n")
    print("\nall is as it should be" if found else "\nNOT as it should be")
    return 0 if found else 1


def follow(cluster: Cluster, folder: Path, diary: Diary, logs: list[Path]) -> None:
    """Raises AssertionError or TimeoutError if something is not as it should be."""
    nodes = [cluster.add(4, gpus=1), cluster.add(2)]
    diary.say("three nodes: a head with 1 CPU, one with 4 and a GPU by name alone, one with 2")
    run = folder / "run"
    words = [*shlex.split(COMMAND), "--address", cluster.address, "--workdir", str(run)]
    diary.say(f"seedrl launch {COMMAND} --evaluation.target-return None")
    with ended(Launcher(logs[0], *words, "--evaluation.target-return", "None")) as launcher:
        break_all(cluster, launcher, run, nodes, diary)
        diary.say(f"Ctrl-C at {progress(run)}")
        end(cluster, launcher.interrupt, diary)
    assert launcher.count("saved the checkpoint"), "nothing was saved"

    diary.say(f"seedrl launch {COMMAND}: the same folder")
    with ended(Launcher(logs[1], *words)) as launcher:
        end(cluster, lambda: launcher.process.wait(_AGAIN_SECONDS), diary)
    assert launcher.count("resuming from update") == 1, "it did not resume"
    *_, last = played_rounds(run / run_files.METRICS)
    diary.say(f"{last.mean_return:.1f} over {last.episodes} episodes, at {last.env_steps} steps")
    assert last.is_confirmation and last.mean_return >= TARGET


def break_all(
    cluster: Cluster, launcher: Launcher, run: Path, nodes: list[object], diary: Diary
) -> None:
    """Kills one thing after another, and waits until the run has come over it."""
    await_learning(launcher, run)
    diary.say(f"it learns: {progress(run)}")
    look_for_secrets(cluster, launcher)
    joins, resumes = r"env server \S+ (joins|returns)", "resuming from update"
    updates = status(run)["updates"]

    def breaks(what: str, kill: Callable[[], object], joining: int, resuming: int) -> None:
        joined, resumed = launcher.count(joins), launcher.count(resumes)
        diary.say(f"kill {what} at {progress(run)}")
        kill()
        launcher.await_more(what, resumes, resumed, resuming)
        launcher.await_more(what, joins, joined, joining)
        diary.say("the run has come over it")

    breaks("an env server", lambda: cluster.kill(*_ENV_SERVER), 1, 0)
    breaks("the node with 2 CPUs", lambda: cluster.lose(nodes[1]), 1, 0)
    breaks("the learner", lambda: cluster.kill(*_LEARNER), 3, 1)
    cluster.add(4, gpus=1)
    breaks("the learner's node", lambda: cluster.lose(nodes[0]), 3, 1)
    wait(_AGAIN_SECONDS, "learning", lambda: status(run).get("updates", 0) > updates)


def look_for_secrets(cluster: Cluster, launcher: Launcher) -> None:
    """Fails if a token or a key is in a command line, in the output, or in what Ray writes."""
    found = cluster.processes(*_ENV_SERVER)
    assert len(found) == 3, found
    secrets = {
        Path(value).read_text().strip().splitlines()[-2 if "key" in flag else -1]
        for line in found.values()
        for flag, value in itertools.pairwise(" ".join(line).replace("=", " ").split())
        if flag in ("--token-file", "--private-key")
    }
    assert len(secrets) == 2, "one token, one key"
    lines = [" ".join(line) for line in cluster.processes().values()]
    for text in (*lines, launcher.text(), *cluster.texts()):
        assert not any(secret in text for secret in secrets), "a secret is not one"


def await_learning(launcher: Launcher, run: Path) -> None:
    """Waits until it has learned for a while."""
    learns = lambda: status(run).get("updates", 0) > 100  # noqa: E731
    wait(_AGAIN_SECONDS, "learning", lambda: learns() or launcher.is_over)
    assert learns(), "it has ended"


def end(cluster: Cluster, ends: Callable[[], int], diary: Diary) -> None:
    """Fails unless it ends with 0, and nothing that it has started is there any more."""
    code = ends()
    left = {**cluster.processes(*_LEARNER), **cluster.processes(*_ENV_SERVER)}
    diary.say(f"exit code {code}, {len(left)} of its processes are left")
    assert code == 0 and not left, left

    def actors() -> list[str]:
        lines = [line[0] for line in cluster.processes().values()]
        return [line for line in lines if line.startswith("ray::") and "Actor" in line]

    # Ray ends those by itself, whether or not anybody waits for it.
    wait(_AGAIN_SECONDS, "the end of all actors", lambda: not actors())
    diary.say("no actor is left")


@contextlib.contextmanager
def ended(launcher: Launcher) -> Iterator[Launcher]:
    """Inside, the launcher runs."""
    try:
        yield launcher
    finally:
        launcher.process.kill()
        launcher.process.wait()


if __name__ == "__main__":
    sys.exit(main())
