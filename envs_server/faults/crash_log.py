"""Which environments a process was at when it died, and what was known of them, for the next one.

An environment may end its process: by a fault of native code, by `os._exit`, or by keeping the
interpreter's lock until the kernel ends what computes too long (`self_restart.allow_computing`).
Nobody is left then who could say which it was. So the process that is started in its place notes
each environment before it is built, reset, stepped or closed: a second death has its culprit. The
first process does without, because that costs as much as some environments' steps.
"""

import logging
import mmap
import os
import signal
import struct
from pathlib import Path

from envs_server.faults.quarantine import Quarantine
from envs_server.sent_log import allocate
from seedrl.exit_codes import ExitCode

_log = logging.getLogger("envs_server")

_FIRST_SIGNAL = 128
# These come from outside: from an operator, a scheduler, or a kernel without memory.
_FROM_OUTSIDE = frozenset(
    _FIRST_SIGNAL + number
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
)
_MOST_ENVIRONMENTS = 4096
_LENGTH = struct.Struct("<Q")
_TEXT = _MOST_ENVIRONMENTS + _LENGTH.size
_SIZE = 2**16
_LAST = _SIZE - 1  # whether the process has heard that training is over


class CrashLog:
    """A file that is mapped into memory: whatever ends the process, the kernel keeps what it holds.

    Attributes:
      at_work: positions of the environments that the process before was at when it ended.
      remembered: what it gave to `remember` last; "" for nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Opens the file, and empties it once it is read; None keeps it in this process.

        The lock of the log of sent steps beside it keeps other processes out. Raises OSError if the
        disk has no room for it.
        """
        if path is None:
            self._memory = mmap.mmap(-1, _SIZE)
        else:
            with path.open("a+b") as file:
                if os.fstat(file.fileno()).st_size != _SIZE:
                    os.ftruncate(file.fileno(), 0)
                    allocate(file, _SIZE)
                self._memory = mmap.mmap(file.fileno(), _SIZE)
        marks = self._memory[:_MOST_ENVIRONMENTS]
        self.at_work = tuple(position for position, mark in enumerate(marks) if mark)
        (length,) = _LENGTH.unpack_from(self._memory, _MOST_ENVIRONMENTS)
        text = self._memory[_TEXT : _TEXT + min(length, _LAST - _TEXT)]
        self.remembered = text.decode(errors="replace")
        self._memory[:] = bytes(_SIZE)

    def note(self, position: int, is_at_work: bool) -> None:
        """The process is at that environment now, or no longer."""
        if position < _MOST_ENVIRONMENTS:
            self._memory[position] = is_at_work

    def remember(self, text: str) -> None:
        """Keeps `text` for the next process, if there is room for it."""
        data = text.encode()
        _LENGTH.pack_into(self._memory, _MOST_ENVIRONMENTS, 0)
        if len(data) <= _LAST - _TEXT:
            self._memory[_TEXT : _TEXT + len(data)] = data
            # Last: a text that has a length is whole.
            _LENGTH.pack_into(self._memory, _MOST_ENVIRONMENTS, len(data))

    def say_farewell(self) -> None:
        """The process has heard that training is over; see `said_farewell`."""
        self._memory[_LAST] = True


def said_farewell(path: Path) -> bool:
    """Whether the process whose log that is had heard that training is over."""
    try:
        with path.open("rb") as file:
            file.seek(_LAST)
            return file.read(1) == b"\1"
    except OSError:
        return False


def quarantine_after(num_envs: int, log: CrashLog, own: str, ended: str) -> Quarantine:
    """What is known of the environments at the start of a process.

    Args:
      num_envs: how many there are.
      log: what a process before has left, and where this one leaves what it knows.
      own: what this process itself gave to `Quarantine.remember` before it began again; "" if it
        has not.
      ended: the exit code of the process that this one replaces; "" if it replaces none.
    """
    is_successor = ended not in ("", str(int(ExitCode.FAILING_ENVIRONMENT)))
    known = own or (log.remembered if is_successor else "")
    quarantine = Quarantine(num_envs, remembered=known, keep=log.remember)
    if is_successor and not own and is_suspect(ended) and log.at_work:
        _log.error("%s", _blamed(quarantine, log.at_work, int(ended)))
    return quarantine


def is_suspect(ended: str) -> bool:
    """Whether a process that ended with that code, "" for none, may have died of an environment."""
    return ended.isdigit() and int(ended) not in _FROM_OUTSIDE


def _blamed(quarantine: Quarantine, at_work: tuple[int, ...], code: int) -> str:
    """Counts the death of a process against the environment that it was at; the line for that."""
    if code > _FIRST_SIGNAL:
        number = code - _FIRST_SIGNAL
        known = number in list(signal.Signals)
        how = f"by {signal.Signals(number).name if known else f'signal {number}'}"
    else:
        how = f"with exit code {code}"
    if code == _FIRST_SIGNAL + signal.SIGVTALRM:
        how += ", for it kept the interpreter's lock (serving.step_deadline_seconds)"
    if len(at_work) > 1:  # groups in threads of their own
        names = ", ".join(map(str, at_work))
        return f"the process before ended {how}, in one of the environments {names}"
    (position,) = at_work
    text = f"environment {position} has ended the process before, {how}"
    return quarantine.failed(position, text, ends_process=True)
