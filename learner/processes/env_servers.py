"""The env servers of a run on this machine: how many, how large, and the process that runs them."""

import contextlib
import itertools
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Self

from learner.processes import parent_death
from seedrl.config import Config
from seedrl.config_io import path_for_children
from seedrl.errors import ConfigError, in_one_line
from seedrl.exit_codes import ExitCode
from seedrl.fields import with_fields
from seedrl.run_files import make_folder
from seedrl.timing import GRACE_SECONDS, WARNING_SECONDS

# Many env servers share few cores: each steps its environments in one thread.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LONGEST_FOLDER = 80  # of the 107 bytes that a socket's path may have
# How the parent process of env servers starts the line that says why it ends.
_ERROR = "python -m envs_server: error: "


class Fleet(NamedTuple):
    """`num_servers` env servers of `num_envs` environments each, stepped in `num_groups` groups.

    In fewer groups if there are fewer environments: none is empty.
    """

    num_servers: int
    num_envs: int
    num_groups: int


def plan(config: Config) -> Fleet:
    """The env servers that fill the slots. Raises ConfigError if there are none."""
    launch, serving = config.launch, config.serving
    if launch.env_servers < 1:
        raise ConfigError(f"launch.env_servers: expected at least 1, got {launch.env_servers}")
    slots = serving.training_slots + serving.evaluation_slots
    num_servers, num_envs = launch.env_servers, launch.envs_per_server
    if not num_envs:
        num_servers = min(num_servers, slots)
        num_envs = -(-slots // num_servers)  # rounded up, or slots would stay empty
    return Fleet(num_servers, num_envs, launch.groups)


def on_private_socket(config: Config, address: str) -> Config:
    """Serves only this process's own env servers, which need no token nor certificates."""
    # Who can enter the socket's folder is this user.
    names = ("token_file", "certificate", "private_key", "authority")
    unused = {f"serving.{name}": "" for name in names}
    return with_fields(config, {**unused, "serving.bind": address, "serving.insecure": False})


def command(fleet: Fleet, config: Config, *, logs: Path) -> list[str]:
    """The command line of the one process that starts and restarts the fleet's env servers.

    `logs`: folder of their logs, which is made. Raises ConfigError if it cannot be made.
    """
    try:
        make_folder(logs)
    except OSError as error:
        raise ConfigError(
            f"--workdir: cannot write in {logs.parent} ({error.strerror}); choose another "
            "directory, or a copy of the run"
        ) from error
    launch = config.launch
    # -P: nothing is imported from the current folder, which may be a run's, and anybody's.
    words = [sys.executable, "-P", "-m", "envs_server", "--learner", config.serving.bind]
    words += ["--processes", str(fleet.num_servers), "--num-envs", str(fleet.num_envs)]
    words += ["--groups", str(fleet.num_groups), "--logs", str(logs)]
    if config.serving.token_file:
        words += ["--token-file", config.serving.token_file]
    if not launch.local_link:
        words += ["--no-local-link"]
    for name in dict.fromkeys((config.environment.id, *config.environment.wrappers)):
        if ":" in name:  # a factory, and no id that gymnasium has
            words += ["--allow-env", name]
    return words


def env_server_environment() -> Mapping[str, str]:
    return {**child_environment(), **dict.fromkeys(_ONE_THREAD, "1")}


def child_environment() -> Mapping[str, str]:
    """This process's environment variables, with the folders of config files on Python's path."""
    # For `python -P`: otherwise the current folder would come before them.
    return {**os.environ, "PYTHONPATH": path_for_children()}


class Child:
    """Owns one child process and its process group, and a thread that waits for its end.

    If this process dies, the kernel kills the child.
    """

    def __init__(
        self,
        words: Sequence[str],
        variables: Mapping[str, str],
        *,
        on_exit: Callable[[int], object] = lambda code: None,
        output: IO[bytes] | int | None = None,
    ):
        """Starts it: a program's path and its arguments, with these environment variables only.

        `on_exit` is called with its exit code by the waiting thread; 128 + n if signal n killed it.
        `output` is where stdout and stderr go; None inherits them.
        """
        # A group of its own, so that Ctrl-C reaches only this process, which decides what to do,
        # and so that what the child has started ends with it.
        tie = [sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid())]
        self._process = subprocess.Popen(
            [*tie, *words],
            env=dict(variables),
            stdin=subprocess.DEVNULL,  # Ctrl-D and keys are this process's
            stdout=output,
            stderr=output,
            process_group=0,
        )
        self.pid = self._process.pid
        self._on_exit = on_exit
        # Guards that a signal is sent only while the process has not been reaped: afterwards its
        # number may belong to another one.
        self._lock = threading.Lock()
        self._is_reaped = False
        self._waiter = threading.Thread(target=self._wait, name="wait for child", daemon=True)
        self._waiter.start()

    def send(self, number: signal.Signals, *, to_group: bool = False) -> None:
        """Sends a signal to the process, or its whole group; does nothing if it has ended."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self._is_reaped:
                (os.killpg if to_group else os.kill)(self.pid, number)

    def has_ended(self, seconds: float) -> bool:
        """True if the process ends within that time and `on_exit` has returned."""
        self._waiter.join(max(seconds, 0.0))
        return not self._waiter.is_alive()

    def end(self, seconds: float) -> None:
        """Asks the process to end by SIGTERM, waits that long, then kills it and its group."""
        self.send(signal.SIGTERM)
        if not self.has_ended(seconds):
            self.send(signal.SIGKILL, to_group=True)
            self._waiter.join()

    def _wait(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        # Before it is reaped, while the group's number is still its own.
        self.send(signal.SIGKILL, to_group=True)
        with self._lock:
            code = self._process.wait()
            self._is_reaped = True
        self._on_exit(code if code >= 0 else 128 - code)


class EnvServers:
    """Owns the child process that runs the env servers of this machine, and a thread that reads it.

    Entering starts the child, leaving ends it. If it ends otherwise, it is restarted, as it
    restarts env servers; but not if it ends with 2, because an env server is refused.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        on_failure: Callable[[str], object] = lambda line: None,
        variables: Mapping[str, str] | None = None,
        restart_seconds: float = GRACE_SECONDS,
        over_seconds: float = WARNING_SECONDS,
    ):
        """Starts nothing yet. `words`: see `command`; `variables`: of the child's environment.

        `on_failure` is called once, in a thread of this class, with why they cannot continue.
        """
        self._words, self._on_failure = words, on_failure
        self._variables = env_server_environment() if variables is None else variables
        self._restart_seconds, self._over_seconds = restart_seconds, over_seconds
        # From the thread that waits for the child.
        self._codes: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._is_ending = threading.Event()
        # Guards `_child`: it may be about to be restarted when the run ends, and must end too.
        self._lock = threading.Lock()
        # Written by the thread, before it calls `on_failure`; read by the main thread afterwards.
        self._refusal = ""

    def __enter__(self) -> Self:
        self._lines = self._start()
        self._thread = threading.Thread(target=self._watch, name="env servers", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_ending.set()
        # The child kills env servers whose environments do not close in time, each by itself.
        self._child.end(3 * GRACE_SECONDS)
        self._thread.join(GRACE_SECONDS)  # it may be in `on_failure`, which is the caller's

    def raise_failure(self) -> None:
        """Raises ConfigError if the env servers cannot continue; nothing else prints the reason.

        So a run whose learner refuses its env servers, which then end too, has one error line.
        """
        if self._refusal:
            raise ConfigError(self._refusal)

    def _start(self) -> IO[bytes]:
        # What the child writes; the env servers write into logs of their own.
        read, write = os.pipe()
        lines = os.fdopen(read, "rb")
        with os.fdopen(write, "wb"):  # in this process: the pipe closes with the child
            self._child = Child(self._words, self._variables, on_exit=self._codes.put, output=write)
        return lines

    def _watch(self) -> None:
        # In a thread that outlives the child: the kernel ties the child to who started it.
        try:
            self._refusal = self._restart_until_the_end()
        except OSError as error:  # no process or no pipe can be made
            self._refusal = f"cannot restart the env servers: {in_one_line(error)}"
        if self._refusal:
            self._on_failure(self._refusal)

    def _restart_until_the_end(self) -> str:
        # Why the child cannot continue; "" if it is over.
        while True:
            line = self._pass_on()
            code = self._codes.get()
            if code == ExitCode.USAGE and not self._is_ending.is_set():
                return line or "see above"
            # The env servers that it leaves end within 3 s, and hold their logs until then. With 0
            # training is over, and this process about to end; or somebody has stopped it alone.
            seconds = self._over_seconds if code == ExitCode.OK else self._restart_seconds
            if self._is_ending.wait(seconds):
                return ""
            _print(f"the parent process of the env servers ended with {code} and is restarted\n")
            with self._lock:
                if self._is_ending.is_set():
                    return ""
                self._lines = self._start()

    def _pass_on(self) -> str:
        # Prints what the child writes until it ends, but not its error line, which is returned.
        refusal = ""
        with self._lines as lines:
            for raw in lines:
                line = raw.decode(errors="replace")
                if line.startswith(_ERROR):
                    refusal = line.removeprefix(_ERROR).strip()
                else:
                    _print(line)
        return refusal


class Fleets:
    """Owns the env servers of a live run: those that it starts with, and more. Of the main thread.

    Each fleet is a child process of its own, so that one is released without the others.
    """

    def __init__(self, fleet: Fleet, build: Callable[[Fleet, str], EnvServers], *, most: int):
        """`build`: of a fleet, and of a folder of its own; `most`: env servers in all."""
        self.most = most
        self._build = build
        self._fleets: list[tuple[Fleet, EnvServers]] = []
        self._released: list[threading.Thread] = []
        self._first, self._num_built = fleet, 0

    def __enter__(self) -> Self:
        self._start(self._first)
        return self

    def __exit__(self, *_: object) -> None:
        for _fleet, started in reversed(self._fleets):
            started.__exit__()

    def raise_failure(self) -> None:
        """See `EnvServers.raise_failure`."""
        for _, started in self._fleets:
            started.raise_failure()

    @property
    def is_releasing(self) -> bool:
        """True while env servers end that were released; for any thread."""
        return any(each.is_alive() for each in self._released)

    @property
    def sizes(self) -> list[int]:
        """Numbers of env servers that `resize` can release the others from, in ascending order."""
        return list(itertools.accumulate(fleet.num_servers for fleet, _ in self._fleets))

    def resize(self, num_servers: int) -> None:
        """Starts env servers, or releases those that were started last, down to one of `sizes`."""
        while self.sizes[-1] > num_servers and len(self._fleets) > 1:
            self._release(self._fleets.pop()[1])
        if (more := num_servers - self.sizes[-1]) > 0:
            self._start(self._fleets[0][0]._replace(num_servers=more))

    def regroup(self, num_groups: int) -> None:
        """Restarts all env servers, each with `num_groups` groups."""
        before, self._fleets = self._fleets, []
        for fleet, started in before:
            self._release(started)
            self._start(fleet._replace(num_groups=num_groups))

    def _start(self, fleet: Fleet) -> None:
        started = self._build(fleet, str(self._num_built or ""))
        started.__enter__()
        self._num_built += 1
        self._fleets.append((fleet, started))

    def _release(self, started: EnvServers) -> None:
        # In a thread: environments may take their time to close, and the main thread has none.
        thread = threading.Thread(target=started.__exit__, name="release env servers", daemon=True)
        self._released = [*self._released, thread]  # rebound: another thread may read it
        thread.start()


def _print(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
        sys.stderr.write(line)
        sys.stderr.flush()


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that only this user can enter, with room for a socket's path; removed at the end."""
    folder = tempfile.gettempdir()
    # The kernel limits a socket's path, whatever TMPDIR says.
    parent = folder if len(os.fsencode(folder)) <= _LONGEST_FOLDER else "/tmp"
    with tempfile.TemporaryDirectory(
        prefix="seedrl-", dir=parent, ignore_cleanup_errors=True
    ) as own:
        yield Path(own)


@contextlib.contextmanager
def socket_address() -> Iterator[str]:
    """The address of a unix socket in a folder of its own; see `private_folder`."""
    with private_folder() as folder:
        yield f"unix:{folder}/learner"
