"""A process of a run on the node where it was placed: what a Ray actor does there."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from learner.jobs import commands
from learner.launch import env_servers
from learner.launch.child import Child, Command
from learner.launch.last_words import telling_line
from learner.on_ray.order import Work
from seedrl.errors import ConfigError
from seedrl.programs.farewell import ENDED_VARIABLE
from seedrl.run_files import LOGS

CONFIG = "config.json"
GRACE_SECONDS = 5.0  # of an env server that is asked to end
_SAVING_SECONDS = 60.0  # of a learner in whose place another one is started
# In the folder of the run: a process that finds in it what this launch wrote sees the same folder.
_MARK = "launch_on_ray"
# The longest that `follow` waits for something to report, and how often it looks for more output.
_FOLLOW_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_SENT_LOG = "env_server.sent"
# What commands start, and the signal that it gets when its actor dies.
_PROGRAMS = {
    "seedrl-learner": ("learner", signal.SIGUSR1),
    "seedrl-env-server": ("envs_server", signal.SIGKILL),
}


class Started(NamedTuple):
    """A process that was started.

    Attributes:
      address: of a learner; "" of others.
      sees_folder: whether the run's folder was there as this launch had left it.
    """

    address: str
    sees_folder: bool


class Report(NamedTuple):
    """What has happened to a process.

    Attributes:
      number: which start of it this is about.
      text: what a learner has printed since the last report, in whole lines.
      code: its exit code, 128 + n after signal n; None while it runs.
      last_line, log: once it has ended: what it has written last (see `telling_line`), and where.
      is_unbegun: whether a SIGTERM has ended it that it had not begun to listen for.
    """

    number: int
    text: str
    code: int | None
    last_line: str = ""
    log: str = ""
    is_unbegun: bool = False


class HostedProcess:
    """Owns one process at a time, and a private folder for its secrets.

    Called by several threads of its actor at once: `follow` waits while others are called, and a
    call whose answer was lost is made again while the first one is still at work. The kernel ends
    the process when this one dies, a learner by the signal on which it saves.
    """

    def __init__(self) -> None:
        # Nothing secret comes as an argument here: Ray keeps those of constructors.
        self._stack = contextlib.ExitStack()
        self._folder = self._stack.enter_context(env_servers.private_folder())
        # The kernel ties a process to the thread that has started it: this one stays.
        self._starter = ThreadPoolExecutor(1)
        self._lock = threading.Lock()  # who starts, ends or stops a process does so alone
        self._running: _Running | None = None
        self._started = Started("", False)
        self._port = 0

    def start_learner(
        self, number: int, work: Work, files: Mapping[str, str], host: str, options: tuple[str, ...]
    ) -> Started:
        """Starts a learner that serves on a port of `host`, the same as before if it is free.

        `files`, by name: its configuration, token and certificates. `options`: of its command line.

        Raises ConfigError if the run's folder cannot be written here.
        """
        with self._lock:
            if self._has_begun(number):
                return self._started
            self._end_process(_SAVING_SECONDS)
            self._write(files)
            mark = work.workdir / LOGS / _MARK
            was_there = _reads(mark, work.mark)
            try:
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.write_text(work.mark)
            except OSError as error:
                raise ConfigError(
                    f"--workdir: expected a folder that {host} can write, got {work.workdir} "
                    f"({error.strerror}); choose another one"
                ) from error
            self._port = _free_port(host, self._port)
            address = f"{host}:{self._port}"
            words = commands.learner(
                replace(work.job, config=str(self._folder / CONFIG)),
                workdir=str(work.workdir),
                bind=address,
                secrets=str(self._folder),
            )
            words += [*options, f"--stop-reason={self._stop_reason}"]
            log = work.workdir / LOGS / "learner.log"
            command = _command(work, "learner", words, env_servers.child_environment(), log)
            return self._start(number, command, Started(address, was_there))

    def start_env_server(
        self,
        number: int,
        work: Work,
        files: Mapping[str, str],
        name: str,
        learner: str,
        ended: int | None = None,
    ) -> Started:
        """Starts an env server of the learner at that address, in place of the one before.

        `ended`: the exit code of that one, if it has died and the next one is to know.
        """
        with self._lock:
            if self._has_begun(number):
                return self._started
            self._write(files)
            self._end_process(GRACE_SECONDS)
            sees_folder = _reads(work.workdir / LOGS / _MARK, work.mark)
            logs = work.workdir / LOGS if sees_folder else self._folder
            words = commands.env_server(work.job, learner=learner, secrets=str(self._folder))
            # Here, and not beside its log: a folder that nodes share may be no place to map a file.
            words.append(f"--sent-log={self._folder / _SENT_LOG}")
            own = dict(env_servers.env_server_environment())
            if ended is not None:
                own[ENDED_VARIABLE] = str(ended)
            log = logs / f"{name.replace(' ', '_')}.log"
            command = _command(work, name, words, own, log)
            return self._start(number, command, Started("", sees_folder))

    def follow(self, number: int) -> Report:
        """Waits, some seconds at most, for output of a learner or the end of that start."""
        running, deadline = self._running, time.monotonic() + _FOLLOW_SECONDS
        assert running is not None
        if number != running.number:  # asked again, and too late: that start is over
            return Report(number, "", None)
        while True:
            report = running.report()
            is_over = report.code is not None or time.monotonic() >= deadline
            if report.text or is_over:
                return report
            running.ended.wait(_LOOK_SECONDS)

    def stop(self, reason: str) -> None:
        """Asks the process to end, and says why; asks once, however often it is called."""
        with self._lock:
            running = self._running
            if running is not None and not running.is_asked:
                running.is_asked = True  # another SIGTERM would end a learner that is saving
                with contextlib.suppress(OSError):  # a full disk: the learner names the signal
                    self._stop_reason.write_text(reason)
                running.child.send(signal.SIGTERM)

    def end(self, seconds: float) -> None:
        """Ends the process, by force after that time; nothing can be started any more."""
        with self._lock:
            self._end_process(seconds)
            self._starter.shutdown()
            self._stack.close()

    def _has_begun(self, number: int) -> bool:
        """Whether that start, or a later one, was made: the call for it came twice, or too late."""
        return self._running is not None and number <= self._running.number

    def _start(self, number: int, command: Command, started: Started) -> Started:
        self._running = self._starter.submit(_Running, number, command).result()
        self._started = started
        return started

    def _end_process(self, seconds: float) -> None:
        if self._running is not None:
            self._running.child.send(signal.SIGTERM)
            self._running.child.end(seconds)

    def _write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self._folder / name
            path.touch(mode=0o600)
            path.write_text(text)

    @property
    def _stop_reason(self) -> Path:
        return self._folder / "stop_reason"


class _Running:
    """One start of a process."""

    def __init__(self, number: int, command: Command) -> None:
        self.number, self._log = number, command.log
        self.is_asked = False  # whether `stop` has sent its signal
        self.ended = threading.Event()
        self._lock = threading.Lock()  # of `_read_bytes`: it may be followed twice at once
        self._code: int | None = None
        self._is_learner = command.name == "learner"
        self.child = Child(command, self._has_ended)
        self._read_bytes = self.child.log_start

    def report(self) -> Report:
        """What has happened since the last one."""
        code = self._code  # before what it has written is read: then that is all of it
        text = self._text(is_all=code is not None) if self._is_learner else ""
        if code is None:
            return Report(self.number, text, None)
        is_unbegun = self.child.is_killed_by(signal.SIGTERM)
        line = telling_line(self.child.last_lines())
        return Report(self.number, text, code, line, str(self._log), is_unbegun)

    def _text(self, *, is_all: bool) -> str:
        with self._lock:
            new = self._unread()
            whole = new if is_all else new[: new.rfind(b"\n") + 1]
            self._read_bytes += len(whole)
        return whole.decode(errors="replace")

    def _unread(self) -> bytes:
        assert self._log is not None
        try:
            with self._log.open("rb") as log:
                if os.fstat(log.fileno()).st_size < self._read_bytes:  # somebody has emptied it
                    self._read_bytes = 0
                log.seek(self._read_bytes)
                return log.read()
        except OSError:  # somebody has removed it: no reason to end the run
            return b""

    def _has_ended(self, child: Child, code: int) -> None:
        self._code = code
        self.ended.set()


def _command(work: Work, name: str, words: list[str], own: Mapping[str, str], log: Path) -> Command:
    program, ending = _PROGRAMS[words[0]]
    path = os.pathsep.join([*work.import_folders, own["PYTHONPATH"]])
    return Command(
        name=name,
        arguments=(sys.executable, "-P", "-m", program, *words[1:]),
        environment={**own, "PYTHONPATH": path},
        log=log,
        ending=ending,
    )


def _reads(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text
    except OSError:
        return False


def _free_port(host: str, wanted: int) -> int:
    """A port that nobody has: that one if it is free."""
    for port in (wanted, 0):
        with socket.socket() as listening, contextlib.suppress(OSError):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            found: int = listening.getsockname()[1]
            return found
    raise OSError(f"no port of {host} is free")
