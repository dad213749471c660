"""Programs of this project as processes of their own, without importing the same again each time.

A learner spends a second on imports, an env server a third of one. So `start` asks a process that
has imported what they import, and nothing else, to fork: what runs then is `python -m MODULE` in a
process with a number, files, folder, variables and an end of its own, whose parent is the caller.
The process that forks has no thread of Python's and no device of jax's.

Where variables that are read while Python or jax is imported differ, or forking so is not possible,
the program is started anew.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import json
import logging
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.patience import SECONDS

_ROOT = Path(__file__).parents[1]
_IMPORTED = ("JAX_", "XLA_", "PYTHON", "GRPC_", "OMP_", "OPENBLAS_", "LD_", "MALLOC_")
_PR_SET_CHILD_SUBREAPER = 36
_MAX_REQUEST_BYTES = 2**20
# Packages whose programs import much.
_PACKAGES = ("learner", "envs_server", "tests")


def start(
    words: Sequence[str],
    *,
    cwd: Path,
    variables: Mapping[str, str],
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
) -> "subprocess.Popen[str]":
    """Runs `python -m` with these words: the module, then its arguments.

    `variables` are all that it has of the environment. Nothing comes from stdin. What goes to a
    PIPE is text.
    """
    if sys.platform == "linux" and words[0].partition(".")[0] in _PACKAGES:
        forker = _forker(_imported(variables))
        if forker is not None:
            return forker.fork(words, cwd, variables, [stdout, stderr])
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=dict(variables),
        text=True,
    )


def env_server(*words: str) -> "subprocess.Popen[str]":
    """Runs `python -m envs_server` with these words; its stderr is for the caller to read."""
    return start(
        ["envs_server", *words],
        cwd=Path.cwd(),
        variables=variables(),
        stdout=sys.__stdout__.fileno(),
        stderr=subprocess.PIPE,
    )


def python(
    *words: str, cwd: Path | None = None, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    """What Python answers to these words; it imports from where this process does."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def variables() -> dict[str, str]:
    """Those of this process, with what tests name on Python's path, and with buffered output."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return own | {"PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "tests" / "plugin")])}


class _Forked(subprocess.Popen[str]):
    """A child that this process has not started itself, with everything a Popen can do then."""

    def __init__(self, pid: int, words: Sequence[str], ends: Sequence[IO[str] | None]) -> None:
        """`ends`: to read its stdout and stderr from, where these are pipes."""
        self.args = [sys.executable, "-m", *words]
        self.pid, self.returncode = pid, None  # type: ignore[assignment]
        self.stdin = None
        self.stdout, self.stderr = ends
        self._input, self._communication_started, self.text_mode = None, False, True
        self._waitpid_lock = threading.Lock()
        self._sigint_wait_secs = 0.25
        self._child_created = True


class _Forker:
    """Owns the process that forks."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.started", str(other.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=_ROOT,
                env=dict(variables),
                pass_fds=[other.fileno()],
            )
        atexit.register(self._close)

    def fork(
        self,
        words: Sequence[str],
        cwd: Path,
        variables: Mapping[str, str],
        outputs: Sequence[IO[bytes] | int],
    ) -> _Forked:
        request = {"words": words, "cwd": str(cwd), "variables": dict(variables)}
        ends: list[IO[str] | None] = []
        with contextlib.ExitStack() as stack, _adopting():
            files = []
            for output in outputs:
                if output == subprocess.PIPE:
                    read_end, output = os.pipe()
                    stack.callback(os.close, output)
                    ends.append(os.fdopen(read_end))
                else:
                    ends.append(None)
                files.append(output if isinstance(output, int) else output.fileno())
            socket.send_fds(self._own, [json.dumps(request).encode()], files)
            pid = int(self._own.recv(_MAX_REQUEST_BYTES))
        return _Forked(pid, words, ends)

    def _close(self) -> None:
        self._own.close()
        self._process.wait()


@functools.cache
def _forkers() -> dict[Any, _Forker]:
    return {}


def _forker(imported: tuple[tuple[str, str], ...]) -> _Forker | None:
    """The one that has imported under these variables; the first program decides about them."""
    known = _forkers()
    if not known:
        known[imported] = _Forker(os.environ | dict(imported))
    return known.get(imported)


def _imported(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in variables.items() if item[0].startswith(_IMPORTED)))


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Whose parent ends meanwhile becomes a child of this process, not of the machine's first."""
    system = ctypes.CDLL(None)
    system.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        system.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _import() -> None:
    """What learners and env servers import sooner or later."""
    import gymnasium.vector  # noqa: F401
    import orbax.checkpoint  # noqa: F401
    from jax._src import xla_bridge

    import envs_server.client  # noqa: F401
    import learner.report.terminal
    import learner.train  # noqa: F401
    import seedrl.agents.r2d2  # noqa: F401

    assert not xla_bridge.backends_are_initialized()
    assert threading.active_count() == 1
    # What is imported last would find what the first has made of it.
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    gc.freeze()  # so that looking for garbage copies no page


def _serve(number: int) -> tuple[Mapping[str, Any], list[int]]:
    """Forks for each request; returns in the new process, with its request and files."""
    with socket.socket(fileno=number) as requests:
        while True:
            message, files, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 2)
            if not message:
                os._exit(0)
            pid = _forked()
            if pid == 0:
                return json.loads(message), files
            for file in files:
                os.close(file)
            requests.send(str(pid).encode())


def _forked() -> int:
    """Like `os.fork`; the parent of the new process has ended: who asked for it becomes that."""
    read_end, write_end = os.pipe()
    if between := os.fork():
        pid = int(os.read(read_end, 20))
        os.waitpid(between, 0)
    elif pid := os.fork():
        os.write(write_end, str(pid).encode())
        os._exit(0)
    os.close(read_end)
    os.close(write_end)
    return pid


def _become(request: Mapping[str, Any], files: list[int]) -> None:
    """Makes this process look as if Python had just been started in it."""
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["variables"])
    # Those of before would remember whether the forker's own files can be sought in.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    # As `python -m` makes it: the current folder first.
    sys.path[0] = os.getcwd()
    module, *sys.argv[1:] = request["words"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _import()
    _become(*_serve(int(sys.argv[1])))
