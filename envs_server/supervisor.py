"""The env servers of one machine: child processes that are started again when they die."""

import contextlib
import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

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
_PR_SET_CHILD_SUBREAPER = 36
# Of an env server's output more is not kept than this; when it is cut, a quarter stays.
_LONGEST_LOG_BYTES = 2**22
_STOPPED_SECONDS = 30.0  # an environment that stops its process (SIGSTOP) is not waited for longer


@dataclass
class _Child:
    """An env server over all its processes. Times are of the monotonic clock."""

    number: int
    process: subprocess.Popen[bytes] | None = None  # None while it pauses or is over
    mark: str = ""
    started: float = 0.0
    stopped: float = math.inf  # since when its process stands still
    pause: float = 0.0  # before the last start
    due: float = 0.0  # when it is started again; infinite if it is over


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
        self._children = [_Child(number) for number in range(options.processes)]
        self._num_starts = 0
        self._is_asked = False  # by a signal, whose handler does no more than note it
        self._outcome: int | None = None  # once they are to end
        self._deadline = math.inf

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="seedrl-"))
            self._folder = Path(folder)
            for number in ending_signals():
                stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
            stack.callback(self._kill)
            # Processes whose parent is gone become this one's children: see `_end_orphans`.
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            for child in self._children:
                self._start(child)
            self._stack = stack.pop_all()
        processes, envs = self._options.processes, self._options.num_envs
        self._print(f"{processes} env servers of {envs} environment{'s' * (envs > 1)} each")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _on_signal(self, *_: object) -> None:
        self._is_asked = True

    def wait(self) -> int:
        """Starts again each that dies, until all have ended; returns the exit code.

        That is 0 if training is over or a signal has asked for the end, and 2 if one of them has
        ended so, which ends the others: wrong usage would end them too. One that pauses when all
        others have finished is not started again.
        """
        while (running := [child for child in self._children if child.process]) or self._pauses():
            if self._is_asked:
                self._end(ExitCode.OK)
            if running and time.monotonic() >= self._deadline:
                self._print(f"{len(running)} env servers did not end in time: killed")
                break
            for child in self._children:
                if child.process is not None:
                    self._look(child, child.process)
                elif self._outcome is None and time.monotonic() >= child.due:
                    self._start(child)
            self._reap()
            time.sleep(POLL_SECONDS)
        return self._outcome or ExitCode.OK

    def _pauses(self) -> bool:
        """True if one is to be started again although none runs."""
        is_over = any(child.due == math.inf for child in self._children)
        return self._outcome is None and not is_over

    def _end(self, outcome: int) -> None:
        """Asks all to end, once. Those that have ended are not reaped: their numbers are theirs."""
        if self._outcome is None:
            self._outcome, self._deadline = outcome, time.monotonic() + GRACE_SECONDS
            for child in self._children:
                if child.process is not None:
                    os.kill(child.process.pid, signal.SIGTERM)
                    os.kill(child.process.pid, signal.SIGCONT)

    def _kill(self) -> None:
        self._outcome = self._outcome or ExitCode.OK
        for child in self._children:
            if child.process is not None:
                os.kill(child.process.pid, signal.SIGKILL)
                self._look(child, child.process, flags=os.WEXITED)
        self._end_orphans()

    def _reap(self) -> None:
        """Forgets orphans that have ended."""
        own = {child.process.pid for child in self._children if child.process}
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):  # there is none
            while (found := os.waitid(os.P_ALL, 0, flags)) and found.si_pid not in own:
                os.waitpid(found.si_pid, 0)

    def _end_orphans(self) -> None:
        """Kills what environments have left behind, once all env servers have ended.

        In a session and with an environment of its own it has neither group nor mark.
        """
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        deadline = time.monotonic() + GRACE_SECONDS
        with contextlib.suppress(OSError):  # a kernel that does not list them
            # Again: the children of those that were killed are ours by now.
            while (pids := children.read_text().split()) and time.monotonic() < deadline:
                for pid in pids:
                    os.kill(int(pid), signal.SIGKILL)
                time.sleep(0.01)
                self._reap()

    def _look(
        self,
        child: _Child,
        process: subprocess.Popen[bytes],
        *,
        flags: int = os.WEXITED | os.WSTOPPED | os.WNOHANG,
    ) -> None:
        """Notes that a process has ended, or kills one that stands still for too long."""
        found, now = os.waitid(os.P_PID, process.pid, flags | os.WNOWAIT), time.monotonic()
        if self._options.logs is not None:
            _cut(self._log_of(child))
        if found is None:
            child.stopped = math.inf
        elif found.si_code == os.CLD_STOPPED:  # reported until it continues or ends
            child.stopped = min(child.stopped, now)
            if now - child.stopped >= _STOPPED_SECONDS:
                self._print(f"env server {process.pid} was stopped for too long: killed")
                os.kill(process.pid, signal.SIGKILL)
        else:
            # Before its number, and its group's, may be another's: all that it has started.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            _kill_marked(child.mark)
            code = process.wait()
            child.process, child.stopped = None, math.inf
            if self._outcome is None:
                self._has_ended(child, process.pid, code if code >= 0 else 128 - code)

    def _has_ended(self, child: _Child, pid: int, code: int) -> None:
        if code == ExitCode.USAGE:
            reason = _last_line(self._log_of(child)) if self._options.logs else "see above"
            self._print(f"error: {reason}")
            self._end(code)
            return
        # Its code does not show this: an environment may end the process too, with 0.
        if has_finished(self._sent_log_of(child)):
            child.due = math.inf
            return
        now = time.monotonic()
        child.pause = min(max(2 * child.pause, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        if now - child.started >= _LONGEST_PAUSE_SECONDS:
            child.pause = 0.0
        child.due = now + child.pause
        self._print(f"env server {pid} ended with {code} and is restarted in {child.pause:g} s")

    def _start(self, child: _Child) -> None:
        self._num_starts += 1
        child.mark = f"{os.getpid()}.{self._num_starts}"
        marks = {PARENT_VARIABLE: str(os.getpid()), _MARK_VARIABLE: child.mark}
        try:
            with contextlib.ExitStack() as stack:
                output = None
                if self._options.logs is not None:
                    output = stack.enter_context(self._log_of(child).open("ab"))
                child.process = subprocess.Popen(
                    [*self._command, "--sent-log", str(self._sent_log_of(child))],
                    env={**os.environ, **marks},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    # Ctrl-C reaches only this process, which decides what to do.
                    process_group=0,
                )
        except OSError as error:
            child.due = time.monotonic() + _LONGEST_PAUSE_SECONDS
            self._print(f"cannot start an env server ({error.strerror}); next try in a minute")
        child.started = time.monotonic()

    def _log_of(self, child: _Child) -> Path:
        """The output of an env server, of all its processes."""
        assert self._options.logs is not None
        return self._options.logs / f"env_server_{child.number}.log"

    def _sent_log_of(self, child: _Child) -> Path:
        file = self._options.sent_log or (self._options.logs or self._folder) / "env_server.sent"
        return file.with_name(f"{file.stem}_{child.number}{file.suffix}")

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a closed terminal does not end the env servers
            print(f"{PROG}: {line}", file=sys.stderr, flush=True)


def _cut(log: Path) -> None:
    """Keeps only the newest of a log that has become too long; its writers append."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > _LONGEST_LOG_BYTES:
            with log.open("a+b") as file:
                file.seek(-_LONGEST_LOG_BYTES // 4, os.SEEK_END)
                kept = file.read(_LONGEST_LOG_BYTES)  # more may be written meanwhile
                file.truncate(0)
                file.write(b"(the log was too long: what came before is gone)\n" + kept)


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
