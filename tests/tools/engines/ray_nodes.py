"""A Ray cluster of this machine alone: its nodes are processes, on the loopback device."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[3]
# What all processes that a cluster starts have in their environment.
_MARK = "SEEDRL_ENGINE_TEST"
_OBJECT_STORE_BYTES = 80 * 2**20  # about the least that Ray starts with; nothing of ours is in it
_PAUSE_SECONDS = 0.5
# Of a node, for which Ray waits for 30 s: that is short on a machine that does other work.
_TRIES = 5


class Cluster:
    """Owns the processes of a cluster's nodes; leaving ends them.

    Attributes:
      head: the node without which there is no cluster.
    """

    def __init__(self, folder: Path) -> None:
        """Starts a head with one CPU. `folder`: of Ray's own files; its path must be short."""
        os.environ |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(folder),
            _MARK: str(folder),
            "PYTHONPATH": str(ROOT),
        }
        from ray.cluster_utils import Cluster as RayCluster

        self._folder = folder
        self._cluster = RayCluster()
        self._hosts = iter(range(2, 255))
        self.head = self.add(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()

    @property
    def address(self) -> str:
        """For programs of this machine."""
        return str(self._cluster.address)

    def add(self, cpus: int, gpus: int = 0) -> Any:
        """A new node with so many CPUs and GPUs, whatever the machine has."""
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._cluster.add_node(
                    num_cpus=cpus,
                    num_gpus=gpus,
                    # Not 127.0.0.1, which Ray takes for a name of the machine's outer address.
                    node_ip_address=f"127.0.0.{next(self._hosts)}",
                    object_store_memory=_OBJECT_STORE_BYTES,
                    include_dashboard=False,
                )
            except Exception as error:
                if "timed out during startup" not in str(error) or not tries_left:
                    raise

    def lose(self, node: Any) -> None:
        """Kills all processes of a node's own at once."""
        self._cluster.remove_node(node, allow_graceful=False)

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

    def kill(self, *words: str) -> int:
        """Kills the first process with these words; returns its number."""
        pid = min(self.processes(*words))
        os.kill(pid, signal.SIGKILL)
        return pid

    def texts(self) -> Iterator[str]:
        """What Ray has written: its logs, and all else in its folder that is a file."""
        for path in self._folder.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file():
                    yield path.read_text(errors="replace")


def wait(seconds: float, what: str, is_so: Callable[[], object]) -> None:
    """Waits until it is so. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(_PAUSE_SECONDS)
