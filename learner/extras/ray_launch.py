"""A run on a Ray cluster: an actor for each process, which Ray places and places again.

The one module that imports ray. Each actor starts its process as a child and starts it again if it
dies; if the actor or its node is lost, Ray restarts the actor in the same bundle of the placement
group (`max_restarts`) and repeats its call of `run` (`max_task_retries`). Steps go between env
servers and learner over gRPC with TLS, never through Ray. What processes print goes into Ray's logs
and from there to the terminal of `seedrl launch`.
"""

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from learner.processes.env_servers import (
    Child,
    child_environment,
    env_server_environment,
    private_folder,
)
from learner.processes.stop import StopRequest, stop_on_signals
from seedrl.errors import ConfigError, HostLostError
from seedrl.exit_codes import ExitCode
from seedrl.timing import GRACE_SECONDS

# Another start of the learner would not change these.
_FINAL = (
    *(ExitCode.OK, ExitCode.TARGET_MISSED, ExitCode.USAGE),
    ExitCode.UNREADABLE_CHECKPOINT,
)
# Restarts of the learner in its actor, and as often of the actor.
_RESTARTS = 6


class Work(NamedTuple):
    """What is the same for all processes of a run.

    Command lines come after the interpreter; in them {folder} stands for the folder with `files`
    (configuration, token, certificates, the authority with its key, by name), {address} for the
    learner's. `issue` makes the learner's certificate for a host, in a folder with those files.
    """

    learner: Sequence[str]
    env_server: Sequence[str]
    files: Mapping[str, str]
    issue: Callable[[Path, str], None]
    port: int  # that the learner serves on if it is free
    num_env_servers: int
    import_folders: Sequence[str]  # first on Python's path
    learner_resources: Mapping[str, float]  # by Ray's names
    env_server_cpus: float  # of each
    wait_seconds: float  # for room in the cluster


class LearnerActor:
    """Owns the learner's process. Ray calls `run` in one thread, the others in further ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of `_child` and `_is_ending`: stop may come between starts
        self._child: Child | None = None
        self._is_ending = False
        self._address = ""  # until the learner has been started

    def run(self, work: Work) -> int:
        """Runs the learner until it is over; its exit code."""
        host = ray.util.get_node_ip_address()
        with private_folder() as folder:
            _write(folder, work.files)
            # By the same authority wherever the learner is: env servers need no other files.
            work.issue(folder, host)
            for _ in range(_RESTARTS + 1):
                code = self._run_once(work, folder, f"{host}:{free_port(host, work.port)}")
                if self._is_ending or code in _FINAL:
                    break
                # One whose actor was lost may still be at work: then the folder is its own.
                time.sleep(60.0 if code == ExitCode.TEMPORARY else 1.0)
            return code

    def address(self) -> str:
        return self._address

    def stop(self) -> None:
        """Asks the learner to save and end; it is not started again."""
        with self._lock:
            self._is_ending = True
            if self._child is not None:
                self._child.send(signal.SIGTERM)

    def _run_once(self, work: Work, folder: Path, address: str) -> int:
        ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        words = _words(work.learner, folder, address)
        with self._lock:
            if self._is_ending:
                return ExitCode.OK
            # The kernel kills it if this actor dies; the next one resumes from the last save.
            variables = _variables(child_environment(), work)
            self._child = Child(words, variables, on_exit=ended.put)
        self._address = address
        return ended.get()


class EnvServerActor:
    """Owns an env server's process."""

    def run(self, work: Work, learner: Any) -> int:
        """Runs an env server until training is over, or it is refused; its exit code."""
        with private_folder() as folder:
            _write(folder, work.files)
            while True:
                # Again when it has died, and when the learner has moved.
                if address := _address_of(learner):
                    code = _follow(work, folder, learner, address)
                    if code in (ExitCode.OK, ExitCode.USAGE):
                        return code
                time.sleep(GRACE_SECONDS)


def _follow(work: Work, folder: Path, learner: Any, address: str) -> int | None:
    """Runs an env server until it ends: its exit code, or None if its learner is elsewhere."""
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    words = _words(work.env_server, folder, address)
    child = Child(words, _variables(env_server_environment(), work), on_exit=ended.put)
    while True:
        with contextlib.suppress(queue.Empty):
            return ended.get(timeout=GRACE_SECONDS)
        if _address_of(learner) not in ("", address):
            child.end(GRACE_SECONDS)
            return None


def _address_of(learner: Any) -> str:
    # "" if its actor is not there at the moment.
    with contextlib.suppress(GetTimeoutError, RayActorError):
        return str(ray.get(learner.address.remote(), timeout=2 * GRACE_SECONDS))
    return ""


def _words(command: Sequence[str], folder: Path, address: str) -> list[str]:
    words = (word.replace("{folder}", str(folder)) for word in command)
    return [sys.executable, *(word.replace("{address}", address) for word in words)]


def _variables(own: Mapping[str, str], work: Work) -> dict[str, str]:
    path = [*work.import_folders, own["PYTHONPATH"]]
    return {**own, "PYTHONPATH": os.pathsep.join(path)}


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text)


def free_port(host: str, wanted: int) -> int:
    """A free port of `host`: `wanted` if that is free, so that env servers need not move."""
    for port in (wanted, 0):
        with socket.socket() as listening, contextlib.suppress(OSError):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            return int(listening.getsockname()[1])
    raise OSError(f"no port of {host} is free")


def launch(work: Work, *, address: str, resume: str) -> int:
    """Places the processes of a run and waits until it is over; its exit code.

    `resume` is the command that resumes it. Raises ConfigError if there is no such cluster, or no
    room in it, and HostLostError if the cluster is lost.
    """
    try:
        ray.init(address=address, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ConfigError(
            f"--address: no Ray cluster answers at {address!r} (`ray start --head` starts one on a "
            f"machine): {str(error).splitlines()[0]}"
        ) from error
    # Signals first: one during the placement must end it, too.
    with stop_on_signals() as stop, contextlib.ExitStack() as stack:
        stack.callback(ray.shutdown)  # ends all actors of this launch; so does the driver's end
        try:
            return _place_and_wait(work, stop, resume)
        except ConnectionError as error:
            raise HostLostError(
                f"the connection to the cluster at {address} is lost; this resumes the run from "
                f"its newest checkpoint: {resume}"
            ) from error


def _place_and_wait(work: Work, stop: StopRequest, resume: str) -> int:
    group, of_env_server = _room(work), {"CPU": work.env_server_cpus}

    def options(index: int, asked: Mapping[str, float], restarts: int) -> dict[str, Any]:
        others = {name: amount for name, amount in asked.items() if name not in ("CPU", "GPU")}
        return {
            "num_cpus": asked["CPU"],
            "num_gpus": asked.get("GPU", 0),
            "resources": others,
            "max_restarts": restarts,
            "max_task_retries": -1,  # `run` is called again wherever the actor is restarted
            "max_concurrency": 8,  # `run` occupies one thread
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, index),
        }

    learner = (
        ray.remote(LearnerActor).options(**options(0, work.learner_resources, _RESTARTS)).remote()
    )
    runs = {learner.run.remote(work): "learner"}
    for index in range(work.num_env_servers):
        own = options(index + 1, of_env_server, -1)
        actor = ray.remote(EnvServerActor).options(**own).remote()
        runs[actor.run.remote(work, learner)] = f"env server {index}"
    return _wait(learner, runs, stop, resume)


def _room(work: Work) -> Any:
    asked, of_env_server = work.learner_resources, {"CPU": work.env_server_cpus}
    bundles = [dict(asked), *[of_env_server] * work.num_env_servers]
    group = placement_group(bundles, strategy="SPREAD")
    if not group.wait(work.wait_seconds):
        free = {name: ray.available_resources().get(name, 0) for name in asked}
        raise ConfigError(
            f"--learner-cpus, --env-server-cpus: the cluster has no room within "
            f"{work.wait_seconds:g} s (--wait-seconds) for a learner with {asked} and "
            f"{work.num_env_servers} env servers (--env-servers) with {of_env_server} each; free "
            f"are {free}; fractions such as 0.25 are possible"
        )
    return group


def _wait(learner: Any, runs: dict[Any, str], stop: StopRequest, resume: str) -> int:
    # The first signal asks the learner to save and end; the second ends this process.
    is_asked, refused = False, False
    while True:
        if (stop.is_set() or refused) and not is_asked:
            is_asked = True
            learner.stop.remote()
        for ended in ray.wait(list(runs), timeout=0.5)[0]:
            name = runs.pop(ended)
            try:
                code = ray.get(ended)
            except RayError as error:
                print(f"{name} is lost: {str(error).splitlines()[0]}", file=sys.stderr)
                code = ExitCode.KILLED
            if name == "learner":
                if code not in _FINAL:
                    print(f"resume from the newest checkpoint: {resume}", file=sys.stderr)
                return ExitCode.USAGE if refused else int(code)
            if code == ExitCode.USAGE:
                print(f"seedrl: error: {name} is refused; its log says why", file=sys.stderr)
                refused = True
