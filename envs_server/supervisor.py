"""The env servers of one machine: forks of one process, which starts them again when they die.

A fork has all modules already. So a hundred env servers start in the time of a few, and share the
memory of the modules.
"""

import contextlib
import math
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from envs_server.options import PROG, Options
from envs_server.stop import FINISHED, adopt_orphans, end_with_parent
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs.outcome import exit_code, leave
from seedrl.programs.signals import ending_signals
from seedrl.timing import GRACE_SECONDS, POLL_SECONDS

# Before one is started again, doubled each time that it dies; one that has lived for as long as the
# longest pause is started at once.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
# One that is killed from outside is no worse for it: it is back within 5 s, however often. But the
# kernel, too, kills, again and again if memory is short.
_LONGEST_PAUSE_AFTER_KILL_SECONDS = 3.0
# Of an env server's output more is not kept than this; when it is cut, a quarter stays.
_LONGEST_LOG_BYTES = 2**22


@dataclass
class _Child:
    # An env server over all its processes, the leader of a session each. Times are of the
    # monotonic clock. What a process notes outlives it; see `envs_server.client.Client`.
    notes: Path
    output: Path | None
    pid: int = 0  # 0 while it pauses or is over
    started: float = 0.0
    pause: float = 0.0  # before the last start
    due: float = 0.0  # when it is started again; infinite if it is over


def supervise(options: Options, serve: Callable[[Path], int]) -> int:
    """Runs `options.processes` env servers until all have ended; returns the exit code.

    That is 0 if training is over or a signal has asked for the end, and 2 if one of them has ended
    so, which ends the others: wrong usage would end them too. One that pauses when all others have
    finished is not started again. Each is a fork of this process that calls `serve`, with a file
    for the notes of its `Client`, and exits with the code that `serve` returns.
    For the main thread of a process without others: a fork has only this thread, and the kernel
    ends the forks with it.
    Raises ConfigError if there can be no such folder of logs.
    """
    asked: list[int] = []  # filled by a signal, whose handler does no more
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="seedrl-"))
        for number in ending_signals():
            handler = signal.signal(number, lambda *arguments: asked.append(arguments[0]))
            stack.callback(signal.signal, number, handler)
        if options.logs:
            try:
                options.logs.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"--logs: cannot write in {options.logs}: {error.strerror}"
                ) from error
        children = [_child(options, Path(folder), number) for number in range(options.processes)]
        stack.callback(_kill, children)
        adopt_orphans()
        servers, envs = (
            f"{number} {name}{'s' * (number > 1)}"
            for number, name in (
                (options.processes, "env server"),
                (options.num_envs, "environment"),
            )
        )
        _print(f"{servers} of {envs}{' each' * (options.processes > 1)}")
        return _watch(children, serve, asked)


def _child(options: Options, folder: Path, number: int) -> _Child:
    log = options.logs and options.logs / f"env_server_{number}.log"
    return _Child(folder / f"env_server_{number}", log)


def _watch(children: Sequence[_Child], serve: Callable[[Path], int], asked: Sequence[int]) -> int:
    outcome: ExitCode | None = None  # once they are to end
    deadline = math.inf
    while True:
        for child in children:
            is_ending = bool(asked) or outcome is not None
            if _tend(child, serve, is_ending=is_ending):
                outcome = ExitCode.USAGE
        running = {child.pid for child in children if child.pid}
        _kill_orphans(running)
        if (asked or outcome) and deadline == math.inf:
            outcome, deadline = outcome or ExitCode.OK, time.monotonic() + GRACE_SECONDS
            for pid in running:  # not reaped: their numbers are still their own
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)
        if not running and (outcome is not None or any(c.due == math.inf for c in children)):
            return outcome or ExitCode.OK
        if time.monotonic() >= deadline:
            _print(f"{len(running)} env servers did not end in time: killed")
            return outcome or ExitCode.OK
        time.sleep(POLL_SECONDS)


def _tend(child: _Child, serve: Callable[[Path], int], *, is_ending: bool) -> bool:
    # Starts one, shortens its log, reaps it and restarts it; True if it has ended in a way that
    # ends the others too.
    now = time.monotonic()
    if not (pid := child.pid):
        if not is_ending and now >= child.due:
            _start(child, serve)
        return False
    if child.output is not None:
        _cut(child.output)
    if (code := _reaped(child)) is None:
        return False
    if is_ending:
        return False
    if code == ExitCode.USAGE:
        _print(f"error: {_last_line(child.output) if child.output else 'see above'}")
        return True
    # Its code does not show this: an environment may end the process too, with 0.
    if child.notes.exists() and child.notes.read_text() == FINISHED:
        child.due = math.inf
        return False
    is_killed = code == 128 + signal.SIGKILL
    longest = _LONGEST_PAUSE_AFTER_KILL_SECONDS if is_killed else _LONGEST_PAUSE_SECONDS
    child.pause = min(max(2 * child.pause, _FIRST_PAUSE_SECONDS), longest)
    if now - child.started >= _LONGEST_PAUSE_SECONDS:
        child.pause = 0.0
    child.due = now + child.pause
    reason = " (killed, as the kernel does if memory is short)" if is_killed else ""
    log = f"; its log: {child.output}" if child.output else ""
    pause = f"{child.pause:g} s"
    _print(f"env server {pid} ended with {code}{reason} and is restarted in {pause}{log}")
    return False


def _start(child: _Child, serve: Callable[[Path], int]) -> None:
    supervisor = os.getpid()
    # A signal before the fork has handlers of its own would be noted in a copy of `asked`.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ending_signals())
    try:
        if (pid := os.fork()) == 0:
            _be_env_server(child, serve, supervisor, blocked)
        child.pid = pid
    except OSError as error:
        child.due = time.monotonic() + _LONGEST_PAUSE_SECONDS
        _print(f"cannot start an env server ({error.strerror}); next try in a minute")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    child.started = time.monotonic()


def _be_env_server(
    child: _Child, serve: Callable[[Path], int], supervisor: int, blocked: Collection[int]
) -> NoReturn:
    # In the fork: nothing may return to the supervisor's code.
    def begin() -> int:
        # Ctrl-C reaches only the supervisor, which decides what to do. And an environment has no
        # terminal: its use from the background would stop the process (SIGTTOU).
        os.setsid()
        for number in ending_signals():
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        end_with_parent(supervisor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if child.output is not None:
            log = os.open(child.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
        # Otherwise all env servers would draw the same numbers from numpy's shared generator.
        np.random.seed()
        return serve(child.notes)

    code: int = ExitCode.INTERNAL
    try:
        # Without a log its lines are among the supervisor's, whose error line is the end of all.
        code = exit_code(begin, prog=f"{PROG}: env server {os.getpid()}")
    finally:
        leave(code)


def _reaped(child: _Child, flags: int = os.WEXITED | os.WNOHANG) -> int | None:
    # The exit code of a process that has ended; None while it runs.
    if os.waitid(os.P_PID, child.pid, flags | os.WNOWAIT) is None:
        return None
    # Before its number, and its group's, may be another's: all that it has started.
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    child.pid = 0
    return code if code >= 0 else 128 - code


def _kill(children: Sequence[_Child]) -> None:
    for child in children:
        if child.pid:
            os.kill(child.pid, signal.SIGKILL)
            _reaped(child, os.WEXITED)
    deadline = time.monotonic() + GRACE_SECONDS
    while _kill_orphans(()) and time.monotonic() < deadline:
        time.sleep(0.01)


def _kill_orphans(running: Collection[int]) -> bool:
    # An env server adopts the daemons of its environments (`envs_server.stop`). When it dies they
    # become children of this process, whatever their session; so do their own children when they
    # die. So a child that is no env server is an orphan. True if there were any.
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    orphans: set[int] = set()
    with contextlib.suppress(OSError):  # a kernel that does not list them, or another user's
        orphans = set(map(int, listed.read_text().split())) - set(running)
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)  # one that is still dying is listed again
    return bool(orphans)


def _print(line: str) -> None:
    with contextlib.suppress(OSError):  # a closed terminal does not end the env servers
        print(f"{PROG}: {line}", file=sys.stderr, flush=True)


def _cut(log: Path) -> None:
    # Keeps only the newest of a log that has become too long; its writers append.
    with contextlib.suppress(OSError):
        if log.stat().st_size > _LONGEST_LOG_BYTES:
            with log.open("a+b") as file:
                file.seek(-_LONGEST_LOG_BYTES // 4, os.SEEK_END)
                kept = file.read(_LONGEST_LOG_BYTES)  # more may be written meanwhile
                file.truncate(0)
                file.write(b"(the log was too long: what came before is gone)\n" + kept)


def _last_line(log: Path) -> str:
    # Without the name of the process that wrote it.
    lines = log.read_text(errors="replace").splitlines()
    line = next((line for line in reversed(lines) if line.strip()), "")
    return re.split(r"(?:error|ends): ", line, maxsplit=1)[-1].strip()
