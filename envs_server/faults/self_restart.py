"""An env server that begins again in the same process, to end what hangs in it.

Nobody has to start it: its number and its parent stay, so whoever waits for it notices nothing.
"""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

# What the process before knew; see `Quarantine.remember`.
_VARIABLE = "SEEDRL_ENV_SERVER_REMEMBERS"
_MODULE = "envs_server"
# Killed, a process is gone at once, unless the kernel waits for a device for it.
_DYING_SECONDS = 1.0
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2


def take_remembered() -> str:
    """What the process before this one has left; "" if it is the first."""
    return os.environ.pop(_VARIABLE, "")


def starter(words: Sequence[str]) -> Callable[[str], NoReturn]:
    """What replaces this process by `python -m envs_server` with these words.

    To be asked for by the main thread; what it gives may be called by any. It takes what the next
    one is to know.
    """
    ending = _ending_with_parent()
    flags = ["-P"] if sys.flags.safe_path else []
    command = [sys.executable, *flags, "-m", _MODULE, *words]

    def start(remembered: str) -> NoReturn:
        os.environ[_VARIABLE] = remembered
        if ending:  # it belongs to a thread, and that is to be this one
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ending)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        _end_children()
        _close_files_on_exec()
        os.execv(command[0], command)

    return start


def say_lock_ups() -> None:
    """Prints all stacks when `allow_computing` ends this process."""
    faulthandler.register(signal.SIGVTALRM, all_threads=True, chain=True)


def allow_computing(seconds: float) -> None:
    """Lets the kernel end this process once it has computed for so long since the last call.

    For what keeps the interpreter's lock, so that no thread can look at it: native code, most of
    all. 0 for never.
    """
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)


def _end_children() -> None:
    """Ends what environments have started: it would keep what the next ones need, a port or a lock.

    A process that was forked holds the lock of the sent log, too.
    """
    for pid in _descendants("self"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _DYING_SECONDS
    with contextlib.suppress(ChildProcessError):  # none is left
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)


def _descendants(pid: str) -> list[int]:
    """Of a process, on Linux: its children, those of them, and so on."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # no /proc, or it has ended
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                for child in file.read().split():
                    found += [int(child), *_descendants(child)]
    return found


def _close_files_on_exec() -> None:
    """Whatever libraries have opened: the learner shall see at once that the stream has ended."""
    with contextlib.suppress(OSError):  # no /proc
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if int(name) > 2:
                    os.set_inheritable(int(name), False)


def _ending_with_parent() -> int:
    """The signal that this process gets when its parent dies; 0 for none."""
    if sys.platform != "linux":
        return 0
    number = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value
