"""Several env servers on one machine: processes that one parent forks, and starts again.

Modules are loaded once, which is most of what a start costs, and their memory is shared. The parent
loads them and then only waits: it has one thread, so that nothing is lost by a fork. Linux only.
"""

import contextlib
import ctypes
import dataclasses
import gc
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, Self

import numpy as np

from envs_server.faults.crash_log import said_farewell
from envs_server.options import PROG, Options
from envs_server.processes.one import crash_log_of, serve
from seedrl.exit_codes import ExitCode
from seedrl.programs.abandoned import holding
from seedrl.programs.ending_signals import ending_signals
from seedrl.programs.farewell import ENDED_VARIABLE
from seedrl.programs.outcome import exit_code, leave

_FIRST_SIGNAL = 128
# The next one would end so too: it is refused, or cannot film.
_IN_VAIN = (ExitCode.USAGE, ExitCode.FAILED_FILMS)
# One that has lived for so long is started again at once; others after a pause that doubles.
_LONG_LIFE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
# For them to end by themselves, an environment that hangs included.
_GRACE_SECONDS = 10.0
_FOR_EVER_SECONDS = 3600.0
_PREFIX = "seedrl-"
_PR_SET_PDEATHSIG = 1


class _Start(NamedTuple):
    number: int
    seconds: float  # when, by the monotonic clock


def last_line(path: Path) -> str:
    """What an env server wrote last into its log, without its name."""
    lines = path.read_text(errors="replace").splitlines()
    line = next((line for line in reversed(lines) if line.strip()), "")
    return re.split(r"(?:error|ends): ", line, maxsplit=1)[-1].strip()


class Many:
    """Owns `options.processes` env servers. Used by the main thread, which has no other beside it.

    Entering starts them; leaving ends whatever still runs. Each has a log of sent steps of its own,
    so that none is lost with a process, and the next one knows what its environments have done.
    """

    def __init__(self, options: Options, words: Sequence[str]) -> None:
        """Starts nothing yet. `words` are the command line of all."""
        self._options, self._words = options, words
        self._ending = ending_signals()
        self._signals = (*self._ending, signal.SIGCHLD)
        self._running: dict[int, _Start] = {}  # by process
        self._due: dict[int, float] = {}  # numbers of those that pause, and until when
        self._codes: dict[int, int] = {}  # of numbers whose last process has died
        self._pauses = [0.0] * options.processes
        self._outcome = int(ExitCode.OK)
        self._is_over = False  # as one of them has said
        self._is_ending = False
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX))
            self._folder = Path(folder)
            stack.enter_context(holding(self._folder))
            # Read by `wait`, and so never in the middle of anything.
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
            stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, self._mask)
            stack.callback(self._kill)
            # No collection is to touch, and so to copy, the pages that all share.
            gc.collect()
            gc.freeze()
            for number in range(self._options.processes):
                self._start(number)
            self._stack = stack.pop_all()
        processes, envs = self._options.processes, self._options.num_envs
        self._say(f"{processes} env servers of {envs} environment{'s' * (envs > 1)} each")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self) -> int:
        """Starts again who dies, until all have ended; returns the exit code.

        That is 0 if they have heard that training is over, or a signal has asked for their end; 2
        or 6 if one of them has ended so, which ends the others. Who pauses when all others have
        heard that it is over is not started again.
        """
        deadline = 0.0
        while self._running or (self._due and not self._is_over):
            found = signal.sigtimedwait(self._signals, self._seconds_left(deadline))
            if found is not None and found.si_signo in self._ending and not self._is_ending:
                self._end(ExitCode.OK)
            self._reap()
            self._start_due()
            if not (self._is_ending and self._running):
                continue
            deadline = deadline or time.monotonic() + _GRACE_SECONDS
            if time.monotonic() >= deadline:
                self._say(f"{len(self._running)} env servers did not end in time and are killed")
                break
        return self._outcome

    def _seconds_left(self, deadline: float) -> float:
        moments = [*self._due.values(), *([deadline] if deadline else [])]
        return max(0.0, min(moments) - time.monotonic()) if moments else _FOR_EVER_SECONDS

    def _end(self, outcome: int) -> None:
        self._outcome, self._is_ending = outcome, True
        self._due.clear()
        self._send(signal.SIGTERM)

    def _kill(self) -> None:
        self._is_ending = True
        self._send(signal.SIGKILL)
        while self._running:
            self._reap(wait=True)

    def _send(self, number: signal.Signals) -> None:
        """To all that run. They are not reaped yet, so their numbers are nobody else's."""
        for process in self._running:
            os.kill(process, number)

    def _reap(self, *, wait: bool = False) -> None:
        """Takes note of who has ended, after waiting for one if asked to."""
        flags = os.WEXITED | os.WNOWAIT | (0 if wait else os.WNOHANG)
        while self._running and (found := os.waitid(os.P_ALL, 0, flags)) is not None:
            flags |= os.WNOHANG
            process = found.si_pid
            if process not in self._running:
                # None of these: a child of the program that this one was before an `exec`, or, for
                # the first process of a container, what an env server has left behind.
                os.waitpid(process, 0)
                continue
            # Before its number, and its group's, may be another's.
            with contextlib.suppress(OSError):  # it has ended before it had a group
                os.killpg(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
            code = os.waitstatus_to_exitcode(status)
            self._has_ended(self._running.pop(process), process, code)

    def _has_ended(self, start: _Start, process: int, code: int) -> None:
        code = code if code >= 0 else _FIRST_SIGNAL - code
        if self._is_ending:
            return
        if code in _IN_VAIN:
            if self._options.logs is not None:
                self._say(f"error: {last_line(self._log_of(start.number))}")
            self._end(code)
            return
        # Whatever its code: an environment may end the process too, with 0, or in its `close`.
        if said_farewell(crash_log_of(self._log(start.number))):
            self._is_over = True
            return
        lived = time.monotonic() - start.seconds
        pause = min(2 * self._pauses[start.number], _LONGEST_PAUSE_SECONDS)
        pause = 0.0 if lived >= _LONG_LIFE_SECONDS else max(pause, _FIRST_PAUSE_SECONDS)
        self._pauses[start.number] = pause
        self._due[start.number] = time.monotonic() + pause
        when = f"in {pause:g} s" if pause else "at once"
        self._codes[start.number] = code
        self._say(f"env server {process} ended with {code} and is started again {when}")

    def _start_due(self) -> None:
        now = time.monotonic()
        for number in [number for number, due in self._due.items() if due <= now]:
            del self._due[number]
            self._start(number)

    def _start(self, number: int) -> None:
        parent = os.getpid()
        try:
            process = os.fork()
        except OSError as error:
            self._due[number] = time.monotonic() + _LONGEST_PAUSE_SECONDS
            self._say(f"cannot start an env server ({error.strerror}), and tries again in a minute")
            return
        if process:
            self._running[process] = _Start(number, time.monotonic())
        else:
            self._serve(number, parent)

    def _serve(self, number: int, parent: int) -> NoReturn:
        """What the child does."""
        code = int(ExitCode.INTERNAL)
        try:
            # Ctrl-C reaches the parent alone, which decides what to do.
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
            if os.getppid() != parent:
                os._exit(code)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            if self._options.logs is not None:
                with self._log_of(number).open("ab") as log:
                    os.dup2(log.fileno(), 1)
                    os.dup2(log.fileno(), 2)
            np.random.seed()  # else all have the same numbers, where an environment takes them
            if number in self._codes:
                os.environ[ENDED_VARIABLE] = str(self._codes[number])
            options = dataclasses.replace(
                self._options, processes=1, logs=None, sent_log=self._log(number)
            )
            words = [*self._words, "--processes", "1", "--sent-log", str(options.sent_log)]
            code = exit_code(lambda: serve(options, words), prog=PROG)
        finally:
            # Whatever was raised: further up this stack is what the parent does at its end, which
            # kills all others and removes their folder.
            leave(code)

    def _log_of(self, number: int) -> Path:
        assert self._options.logs is not None
        return self._options.logs / f"env_server_{number}.log"

    def _log(self, number: int) -> Path:
        file = self._options.sent_log or (self._options.logs or self._folder) / "env_server.sent"
        return file.with_name(f"{file.stem}_{number}{file.suffix}")

    def _say(self, line: str) -> None:
        print(f"{PROG}: {line}", file=sys.stderr, flush=True)
