"""A Slurm of this machine alone: its daemons as children, in a folder of their own."""

import contextlib
import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

DAEMONS = ("munged", "slurmctld", "slurmd")
ROOT = Path(__file__).parents[3]
# On a busy machine a daemon takes seconds to answer.
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_PAUSE_SECONDS = 0.5


def missing() -> list[str]:
    """The daemons that are not installed."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return [name for name in DAEMONS if shutil.which(name, path=path) is None]


def own_names(number: int) -> list[str]:
    """Names of this machine. Raises RuntimeError if it has fewer.

    Slurm's own word for a node that is this machine, localhost, is no name of a node.
    """
    lines = [line.partition("#")[0].split() for line in Path("/etc/hosts").read_text().splitlines()]
    others = [name for words in lines if words and words[0] == "127.0.0.1" for name in words[1:]]
    found = list(dict.fromkeys([socket.gethostname(), *others]))
    found = [name for name in found if not name.startswith("localhost")]
    if len(found) < number:
        raise RuntimeError(
            f"expected {number} names of this machine, one for each learner's node, got {found}; "
            "write another one into /etc/hosts: 127.0.0.1 learner2"
        )
    return found[:number]


class Cluster:
    """Owns munged, slurmctld and one slurmd a node; leaving ends them, and what jobs have started.

    Nodes in the partition `learners`, which have names of this machine, as env servers must find
    them, and others in the partition `envs`.
    """

    def __init__(self, folder: Path, *, learner_nodes: int, env_server_nodes: int) -> None:
        """Starts nothing yet. `folder`: of configuration, state and logs."""
        self._folder = folder
        self._learner_nodes = own_names(learner_nodes)
        self._nodes = [
            *self._learner_nodes,
            *(f"node{number}" for number in range(1, env_server_nodes + 1)),
        ]
        self._daemons: list[tuple[str, subprocess.Popen[bytes]]] = []
        path = [str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin"]
        self.environment: Mapping[str, str] = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(ROOT),
            "SLURM_CONF": str(folder / "slurm.conf"),
        }

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, *words: str) -> str:
        """What a command of Slurm prints. Raises CalledProcessError, with its words in a note."""
        done = subprocess.run(
            words, env=self.environment, cwd=self._folder, capture_output=True, text=True
        )
        if done.returncode != 0:
            error = subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
            error.add_note(done.stderr.strip())
            raise error
        return done.stdout.strip()

    def wait(self, seconds: float, what: str, is_so: Callable[[], bool]) -> None:
        """Waits until it is so. Raises TimeoutError, or RuntimeError where a daemon has ended."""
        deadline = time.monotonic() + seconds
        while not is_so():
            for name, process in self._daemons:
                if process.poll() is not None:
                    log = (self._folder / f"{name}.log").read_text(errors="replace")
                    raise RuntimeError(f"{name} has ended: {log[-500:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {seconds:.0f} s")
            time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """Ends all of them."""
        if any(name == "slurmctld" for name, _ in self._daemons):
            with contextlib.suppress(subprocess.CalledProcessError):
                self.call("scancel", "--user", getpass.getuser())
                self.wait(
                    _STOP_SECONDS, "the end of all jobs", lambda: not self.call("squeue", "-h")
                )
        for _, process in reversed(self._daemons):
            process.send_signal(signal.SIGTERM)
        for _, process in reversed(self._daemons):
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._daemons.clear()

    def _start_all(self) -> None:
        key, munge = self._folder / "munge.key", self._folder / "munge.socket"
        key.touch(mode=0o400)
        key.chmod(0o600)
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        (self._folder / "slurm.conf").write_text(self._configuration(munge))
        files: dict[str, str | Path] = {
            "key-file": key,
            "socket": munge,
            "pid-file": "munge.pid",
            "seed-file": "munge.seed",
        }
        flags = [f"--{flag}={self._folder / name}" for flag, name in files.items()]
        # By force: a temporary folder is writable for others.
        self._start("munged", ["munged", "--foreground", "--force", *flags])
        self.wait(_START_SECONDS, "munged's socket", munge.exists)
        self._start("slurmctld", ["slurmctld", "-D", "-i"])
        for node in self._nodes:
            self._start(f"slurmd-{node}", ["slurmd", "-D", "-N", node])
        self.wait(_START_SECONDS, "all nodes", self._are_idle)

    def _start(self, name: str, words: Sequence[str]) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                words, env=self.environment, cwd=self._folder, stdout=log, stderr=log
            )
        self._daemons.append((name, process))

    def _are_idle(self) -> bool:
        try:
            states = self.call("sinfo", "-h", "-N", "-o", "%T").splitlines()
        except subprocess.CalledProcessError:  # slurmctld does not answer yet
            return False
        return states == ["idle"] * len(self._nodes)

    def _configuration(self, munge: Path) -> str:
        text = (Path(__file__).parent / "slurm.conf").read_text()
        ports = iter(_free_ports(1 + len(self._nodes)))
        values = {
            "folder": str(self._folder),
            "munge": str(munge),
            "user": getpass.getuser(),
            "port": str(next(ports)),
        }
        text = re.sub(r"\{(\w+)\}", lambda found: values[found[1]], text)
        lines = [
            # More than there may be: nothing is measured, and nobody else asks for it.
            f"NodeName={node} NodeAddr=127.0.0.1 Port={next(ports)} CPUs=8 RealMemory=16384"
            for node in self._nodes
        ]
        lines += [
            f"PartitionName=learners Nodes={','.join(self._learner_nodes)} Default=YES",
            f"PartitionName=envs Nodes={','.join(self._nodes[len(self._learner_nodes) :])}",
        ]
        return text + "\n".join(lines) + "\n"


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
