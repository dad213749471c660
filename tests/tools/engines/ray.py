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

COMMAND = (
    "cartpole_r2d2 --on ray --env-servers 3 --learner-cpus 2 --learner-gpus 1 "
    "--checkpoint.interval-seconds 5 --learning.total-steps 10000000"
)
TARGET = 475.0
ROOT = Path(__file__).parents[3]
_LEARNER, _ENV_SERVER = ("-m", "learner"), ("-m", "envs_server")
# What all processes that a cluster starts have in their environment.
_MARK = "SEEDRL_ENGINE_TEST"
# Lines of progress, and what Ray prints of its own when a node is killed.
_NOISE = re.compile(r" steps \(|\(raylet\)|^\s|^$")
# Far more than anything was seen to take on a machine that does other work.
_PATIENCE_SECONDS = 1800.0


class Cluster:
    """A cluster whose nodes are processes of this machine, on the loopback device."""

    def __init__(self, folder: Path) -> None:
        """Starts a head with one CPU. `folder`: of Ray's own files; its path must be short."""
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}
        os.environ |= {_MARK: str(folder), "PYTHONPATH": str(ROOT)}
        from ray.cluster_utils import Cluster as RayCluster

        self._folder = folder
        self.ray = RayCluster()
        self._hosts = iter(range(2, 255))
        self.add(1)

    def add(self, cpus: int, gpus: int = 0) -> Any:
        """A new node with so many CPUs and GPUs, whatever the machine has."""
        for tries_left in reversed(range(5)):
            try:
                return self.ray.add_node(
                    num_cpus=cpus,
                    num_gpus=gpus,
                    # Not 127.0.0.1, which Ray takes for a name of the machine's outer address.
                    node_ip_address=f"127.0.0.{next(self._hosts)}",
                    # About the least that Ray starts with; nothing of ours is in it.
                    object_store_memory=80 * 2**20,
                    include_dashboard=False,
                )
            except Exception as error:
                # Ray waits for a node for 30 s, which is short on a busy machine.
                if "timed out during startup" not in str(error) or not tries_left:
                    raise

    def processes(self, *words: str) -> dict[int, list[str]]:
        """What the cluster has started, and these words are in the command line of, by number."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has just ended
                if f"{_MARK}={self._folder}".encode() in (path / "environ").read_bytes():
                    line = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    if set(words) <= set(line):
                        found[int(path.name)] = line
        return found

    def texts(self) -> Iterator[str]:
        """What Ray has written: its logs, and all else in its folder that is a file."""
        for path in self._folder.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file():
                    yield path.read_text(errors="replace")


class Launcher:
    """Owns a `seedrl launch` of this machine, as if a terminal had started it."""

    def __init__(self, log: Path, *words: str) -> None:
        command = [sys.executable, "-m", "learner.cli.main", "launch", *words]
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def text(self) -> str:
        """What was printed."""
        return self._log.read_text(errors="replace")

    def count(self, pattern: str) -> int:
        """How often this has been printed."""
        return len(re.findall(pattern, self.text()))

    def wait(self, what: str, is_so: Callable[[], object]) -> None:
        """Waits until it is so; fails if the launcher ends before, or in the end."""
        wait(what, lambda: is_so() or self.process.poll() is not None)
        assert is_so(), what


def wait(what: str, is_so: Callable[[], object]) -> None:
    """Waits until it is so. Raises TimeoutError."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.5)


def updates(run: Path) -> int:
    """Of the run; 0 while there is no status."""
    with contextlib.suppress(OSError, ValueError):
        return int(json.loads((run / run_files.STATUS).read_text()).get("updates", 0))
    return 0


def say(text: str) -> None:
    """One line, with the time."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


def main() -> int:
    """Returns the exit code."""
    if importlib.util.find_spec("ray") is None:
        print("expected ray, which is not installed; pip install 'seedrl[ray]'")
        return 2
    print(time.strftime("%Y-%m-%d"), machine_in_words(), f"ray {metadata.version('ray')}", sep=", ")
    with tempfile.TemporaryDirectory(prefix="sr-") as name:
        folder = Path(name)
        (folder / "ray").mkdir()
        cluster, logs = Cluster(folder / "ray"), [folder / f"{number}.log" for number in range(2)]
        found = False
        try:
            follow(cluster, folder / "run", logs)
            found = True
        except (AssertionError, TimeoutError, subprocess.TimeoutExpired) as error:
            say(f"{type(error).__name__}: {error}")
        finally:
            cluster.ray.shutdown()
        for log in filter(Path.exists, logs):
            lines = log.read_text(errors="replace").replace(name, "FOLDER").splitlines()
            print(f"\n{log.name}, without its lines of progress:\n")
            print(*(line for line in lines if not _NOISE.search(line)), sep="\n")
    print("\nall is as it should be" if found else "\nNOT as it should be")
    return 0 if found else 1


def follow(cluster: Cluster, run: Path, logs: list[Path]) -> None:
    """Raises AssertionError or TimeoutError if something is not as it should be."""
    nodes = [cluster.add(4, gpus=1), cluster.add(2)]
    say("three nodes: a head with 1 CPU, one with 4 and a GPU by name alone, one with 2")
    words = [*shlex.split(COMMAND), "--address", str(cluster.ray.address), "--workdir", str(run)]
    say(f"seedrl launch {COMMAND} --evaluation.target-return None")
    with Launcher(logs[0], *words, "--evaluation.target-return", "None") as launcher:
        launcher.wait("learning", lambda: updates(run) > 100)
        look_for_secrets(cluster, launcher)
        break_all(cluster, launcher, run, nodes)
        say(f"Ctrl-C at update {updates(run)}")
        os.killpg(launcher.process.pid, signal.SIGINT)
        end(cluster, launcher)
    assert launcher.count("saved the checkpoint"), "nothing was saved"

    say(f"seedrl launch {COMMAND}: the same folder")
    with Launcher(logs[1], *words) as launcher:
        end(cluster, launcher)
    assert launcher.count("resuming from update") == 1, "it did not resume"
    last = played_rounds(run / run_files.METRICS)[-1].score
    say(f"{last.mean_return:.1f} over {last.episodes} episodes, at {last.env_steps} steps")
    assert last.is_confirmation and last.mean_return >= TARGET


def break_all(cluster: Cluster, launcher: Launcher, run: Path, nodes: list[Any]) -> None:
    """Kills one thing after another, and waits until the run has come over it."""
    joins, resumes = r"env server \S+ (joins|returns)", "resuming from update"

    def kill(*words: str) -> None:
        os.kill(min(cluster.processes(*words)), signal.SIGKILL)

    def lose(node: Any) -> None:
        cluster.ray.remove_node(node, allow_graceful=False)

    def breaks(what: str, work: Callable[[], None], joining: int, resuming: int = 0) -> None:
        joined, resumed = launcher.count(joins) + joining, launcher.count(resumes) + resuming
        say(f"kill {what} at update {updates(run)}")
        work()
        launcher.wait(what, lambda: launcher.count(resumes) >= resumed)
        launcher.wait(what, lambda: launcher.count(joins) >= joined)

    begun = updates(run)
    breaks("an env server", lambda: kill(*_ENV_SERVER), 1)
    breaks("the node with 2 CPUs", lambda: lose(nodes[1]), 1)
    breaks("the learner", lambda: kill(*_LEARNER), 3, 1)
    cluster.add(4, gpus=1)
    breaks("the learner's node, while another with a GPU is there", lambda: lose(nodes[0]), 3, 1)
    launcher.wait("learning", lambda: updates(run) > begun)


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


def end(cluster: Cluster, launcher: Launcher) -> None:
    """Fails unless it ends with 0, and nothing that it has started is there any more."""
    code = launcher.process.wait(_PATIENCE_SECONDS)
    left = {**cluster.processes(*_LEARNER), **cluster.processes(*_ENV_SERVER)}
    say(f"exit code {code}, {len(left)} of its processes are left")
    assert code == 0 and not left, left

    def actors() -> list[str]:
        lines = [line[0] for line in cluster.processes().values()]
        return [line for line in lines if line.startswith("ray::") and "Actor" in line]

    # Ray ends those by itself, whether or not anybody waits for it.
    wait("the end of all actors", lambda: not actors())


if __name__ == "__main__":
    sys.exit(main())
