"""A learner with hand-started env servers, to which things happen, and what its files say of it."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seedrl import checkpoints
from tests.system.processes import TINY, UNHURRIED, Program, Programs, events

FLAGS = (*TINY, *UNHURRIED, "--checkpoint-replay", "--checkpoint.interval-seconds", 0.2)
ENV_SERVERS = 2


def start_learner(programs: Programs, workdir: Path, address: str, *flags: object) -> Program:
    """One that saves all the time; `flags` come after those that make it small."""
    words = ("--workdir", workdir, "--bind", address, *FLAGS, *flags)
    return programs("learner", "cartpole_r2d2", *words)


def start_env_servers(programs: Programs, address: str) -> list[Program]:
    """Which share the slots of such a learner, and outlive it."""
    words = ("--learner", address, "--num-envs", 6 // ENV_SERVERS, "--allow-env", "tests.*")
    return [programs("envs_server", *words) for _ in range(ENV_SERVERS)]


def returns(workdir: Path) -> list[dict[str, Any]]:
    """Events of env servers that have joined after all had joined once."""
    return events(workdir, "server_joined")[ENV_SERVERS:]


def seconds_until_all_are_back(workdir: Path, session: int, since: float) -> float | None:
    """From the listening of a run's n-th learner, from 1, until all env servers have joined.

    None as long as they have not. `since`: when it was started. One may join before the line is
    written that the learner listens.
    """
    started = events(workdir, "started")
    if len(started) < session:
        return None
    listens = started[session - 1]["time_seconds"]
    joined = [event["time_seconds"] for event in events(workdir, "server_joined")]
    joined = [seconds for seconds in joined if seconds >= since]
    return joined[ENV_SERVERS - 1] - listens if len(joined) >= ENV_SERVERS else None


def newest_durable(workdir: Path) -> int:
    """The step of the newest checkpoint whose files are all as they were written; -1 without."""
    folder = workdir / "checkpoints"
    found = [-1]
    for path in folder.glob("0*"):
        with contextlib.suppress(checkpoints.DamagedError):
            found.append(checkpoints.verified(path).step)
    return max(found)


def is_saving(workdir: Path) -> bool:
    """Whether a checkpoint is being written, or was when the learner died."""
    with contextlib.suppress(OSError):
        return checkpoints.SAVING in os.listdir(workdir / "checkpoints")
    return False


@contextlib.contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Inside, so many processes want all the time that they can get."""
    command = [shutil.which("sh") or "sh", "-c", "while :; do :; done"]
    busy = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@contextlib.contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of its own of that size in `folder`."""
    folder.mkdir()
    words = ["-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    subprocess.run(["mount", *words], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Takes all that is left of a file system; the file to delete."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return path
