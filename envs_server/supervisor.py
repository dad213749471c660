"""The env servers of one machine: child processes that are started again when they die."""

import contextlib
import math
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from envs_server.options import PROG, Options
from envs_server.sent_log import has_finished
from envs_server.stop import PARENT_VARIABLE
from seedrl.exit_codes import ExitCode
from seedrl.programs.outcome import ending_signals
from seedrl.timing import GRACE_SECONDS, POLL_SECONDS

# In a child's environment: a mark that everything inherits which it starts.
_MARK_VARIABLE = "SEEDRL_ENV_SERVER"
# Before one is started again, doubled each time that it dies; one that has lived for as long as the
# longest pause is started at once.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_STOPPED_SECONDS = 30.0  # an environment that stops its process (SIGSTOP) is not waited for longer


class _Child(NamedTuple):
    number: int
    process: subprocess.Popen[bytes]
    started: float  # by the monotonic clock
    mark: str


class Supervisor:
    """Owns `options.processes` env servers. Used by the main thread, which has no other beside it.

    Entering starts them; leaving ends every one that still runs. Each is the leader of a process
    group, and gets SIGTERM from the kernel if this process dies. Each has a log of sent steps of
    its own, so that none is lost with a process.
    """

    def __init__(self, options: Options, words: Sequence[str], module: str = "envs_server") -> None:
        """Starts nothing yet. `words` are the command line of all; `module` is the program."""
        self._options = options
        flags = ["-P"] if sys.flags.safe_path else []
        self._command = [sys.executable, *flags, "-m", module, *words]
        self._children: dict[int, _Child] = {}  # by process
        self._due: dict[int, float] = {}  # numbers of those that pause, and until when
        self._stopped: dict[int, float] = {}  # processes that stand still, and since when
        self._pauses = [0.0] * options.processes
        self._num_starts = 0
        self._outcome = int(ExitCode.OK)
        self._is_over = False  # as one of them has noted
        self._deadline = math.inf  # once it is ending
        self._ending_signals = ending_signals()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="seedrl-"))
            self._folder = Path(folder)
            # Handlers only write the signal's number to this pipe, which `wait` reads.
            self._signals, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, self._signals)
            stack.callback(os.close, write_end)
            stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(write_end))
            for signal_number in (*self._ending_signals, signal.SIGCHLD):
                before = signal.signal(signal_number, lambda *_: None)
                stack.callback(signal.signal, signal_number, before)
            stack.callback(self._kill)
            for number in range(self._options.processes):
                self._start(number)
            self._stack = stack.pop_all()
        processes, envs = self._options.processes, self._options.num_envs
        self._print(f"{processes} env servers of {envs} environment{'s' * (envs > 1)} each")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self) -> int:
        """Starts again each that dies, until all have ended; returns the exit code.

        That is 0 if training is over or a signal has asked for the end, and 2 if one of them has
        ended so, which ends the others: wrong usage would end them too. One that pauses when all
        others have finished is not started again.
        """
        while self._children or (self._due and not self._is_over):
            # A signal, of a child's end too, ends the wait; time is looked at by the way.
            if select.select([self._signals], [], [], POLL_SECONDS)[0]:
                came = os.read(self._signals, 4096)
                if any(number in came for number in self._ending_signals):
                    self._end(ExitCode.OK)
            for child in [*self._children.values()]:
                self._look(child)
            self._act_on_time()
            if self._children and time.monotonic() >= self._deadline:
                self._print(f"{len(self._children)} env servers did not end in time: killed")
                break
        return self._outcome

    def _end(self, outcome: int) -> None:
        """Asks all to end, once. Those that have ended are not reaped: their numbers are theirs."""
        if self._deadline < math.inf:
            return
        self._outcome = outcome
        self._deadline = time.monotonic() + GRACE_SECONDS
        self._due.clear()
        for process in self._children:
            os.kill(process, signal.SIGTERM)
            os.kill(process, signal.SIGCONT)

    def _kill(self) -> None:
        self._deadline = 0.0
        for process in self._children:
            os.kill(process, signal.SIGKILL)
        for child in [*self._children.values()]:
            self._look(child, wait=True)

    def _look(self, child: _Child, *, wait: bool = False) -> None:
        """Notes that a child has ended, or for how long it stands still."""
        process = child.process.pid
        flags = os.WEXITED if wait else os.WEXITED | os.WSTOPPED | os.WNOHANG
        found = os.waitid(os.P_PID, process, flags | os.WNOWAIT)
        if found is None:
            self._stopped.pop(process, None)
        elif found.si_code == os.CLD_STOPPED:  # reported until it continues or ends
            self._stopped.setdefault(process, time.monotonic())
        else:
            # Before its number, and its group's, may be another's: all that it has started.
            with contextlib.suppress(OSError):
                os.killpg(process, signal.SIGKILL)
            _kill_marked(child.mark)
            code = child.process.wait()
            del self._children[process]
            self._stopped.pop(process, None)
            self._has_ended(child, code if code >= 0 else 128 - code)

    def _has_ended(self, child: _Child, code: int) -> None:
        if self._deadline < math.inf:
            return
        if code == ExitCode.USAGE:
            reason = _last_line(self._log_of(child.number)) if self._options.logs else "see above"
            self._print(f"error: {reason}")
            self._end(code)
            return
        # Its code does not show this: an environment may end the process too, with 0.
        if has_finished(self._log(child.number)):
            self._is_over = True
            return
        lived = time.monotonic() - child.started
        pause = min(2 * self._pauses[child.number], _LONGEST_PAUSE_SECONDS)
        pause = 0.0 if lived >= _LONGEST_PAUSE_SECONDS else max(pause, _FIRST_PAUSE_SECONDS)
        self._pauses[child.number] = pause
        self._due[child.number] = time.monotonic() + pause
        when = f"in {pause:g} s" if pause else "at once"
        self._print(f"env server {child.process.pid} ended with {code} and is restarted {when}")

    def _act_on_time(self) -> None:
        """Starts those whose pause is over, and kills those that stand still."""
        now = time.monotonic()
        for number in [number for number, due in self._due.items() if due <= now]:
            del self._due[number]
            self._start(number)
        for process, since in [*self._stopped.items()]:
            if now - since >= _STOPPED_SECONDS:
                self._print(f"env server {process} was stopped for {_STOPPED_SECONDS:g} s: killed")
                os.kill(process, signal.SIGKILL)
                del self._stopped[process]

    def _start(self, number: int) -> None:
        self._num_starts += 1
        mark = f"{os.getpid()}.{self._num_starts}"
        marks = {PARENT_VARIABLE: str(os.getpid()), _MARK_VARIABLE: mark}
        try:
            with contextlib.ExitStack() as stack:
                output = None
                if self._options.logs is not None:
                    output = stack.enter_context(self._log_of(number).open("ab"))
                process = subprocess.Popen(
                    [*self._command, "--sent-log", str(self._log(number))],
                    env={**os.environ, **marks},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    # Ctrl-C reaches only this process, which decides what to do.
                    process_group=0,
                )
        except OSError as error:
            self._due[number] = time.monotonic() + _LONGEST_PAUSE_SECONDS
            self._print(f"cannot start an env server ({error.strerror}); next try in a minute")
            return
        self._children[process.pid] = _Child(number, process, time.monotonic(), mark)

    def _log_of(self, number: int) -> Path:
        """The output of an env server, of all its processes."""
        assert self._options.logs is not None
        return self._options.logs / f"env_server_{number}.log"

    def _log(self, number: int) -> Path:
        """Its count of steps sent."""
        file = self._options.sent_log or (self._options.logs or self._folder) / "env_server.sent"
        return file.with_name(f"{file.stem}_{number}{file.suffix}")

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a closed terminal does not end the env servers
            print(f"{PROG}: {line}", file=sys.stderr, flush=True)


def _last_line(log: Path) -> str:
    """The last line of an env server's log, without its name."""
    lines = log.read_text(errors="replace").splitlines()
    line = next((line for line in reversed(lines) if line.strip()), "")
    return re.split(r"(?:error|ends): ", line, maxsplit=1)[-1].strip()


def _kill_marked(mark: str) -> None:
    """Kills what an environment has started in a session of its own, which no group shows."""
    sign = f"{_MARK_VARIABLE}={mark}\0".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # another user's, or it has just ended
                if sign in Path(f"/proc/{entry}/environ").read_bytes():
                    os.kill(int(entry), signal.SIGKILL)
