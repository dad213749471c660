"""What happens in a run, said once: on the terminal, and as a line of `events.jsonl`.

`learner.reporting.event_kinds` lists what can happen.
"""

import collections
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from learner.reporting.event_kinds import PROBLEMS, Kind
from learner.reporting.json_lines import JsonLines
from seedrl.run_files import EVENTS
from seedrl.wire.printable import printable

# Parts of it are the words of other machines.
_LONGEST_TEXT = 500
# Of one kind: an env server that joins and leaves in a loop must not fill the disk.
_MOST_A_MINUTE = 500


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that has happened.

    Attributes:
      time_seconds: Unix time.
      elapsed_seconds: time of the run, over all of its sessions.
      env_steps: training environment steps of the run by then.
      kind: see `learner.reporting.event_kinds`.
      is_problem: whether a person should look at it.
      text: what a person reads, in one line.
      fields: what the text tells, as names and numbers.
    """

    time_seconds: float
    elapsed_seconds: float
    env_steps: int
    kind: Kind
    is_problem: bool
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)


class Listener(Protocol):
    """Who hears of events."""

    def say(self, kind: Kind, text: str, **fields: Any) -> None:
        """Something has happened; neither waits nor raises."""
        ...


class _Nobody:
    def say(self, kind: Kind, text: str, **fields: Any) -> None:
        """Is not heard."""


NOBODY: Listener = _Nobody()


class Events:
    """Takes events from any thread, and never makes it wait; `flush` writes and shows them.

    Owns `workdir/events.jsonl`, to which each session of the run appends. A disk that refuses a
    line is reported as an error, and the run continues.

    Attributes:
      count_steps: gives the training environment steps of the run; set once they are known.
    """

    def __init__(
        self,
        workdir: Path,
        show: Callable[[Event], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        elapsed_seconds: float = 0.0,
        env_steps: int = 0,
    ):
        """Appends to the folder's events.

        Args:
          workdir: the run's folder.
          show: prints an event.
          clock: monotonic seconds.
          elapsed_seconds, env_steps: of earlier sessions of the run.
        """
        self._show = show
        self._clock = clock
        self._started = clock() - elapsed_seconds
        self.count_steps: Callable[[], int] = lambda: env_steps
        self._queue: collections.deque[Event] = collections.deque()
        self._has_some = threading.Event()
        self._minute, self._counts = 0, collections.Counter[str]()
        self._lock = threading.Lock()  # of those who flush
        self._file = JsonLines(workdir / EVENTS)

    @property
    def elapsed_seconds(self) -> float:
        """Time of the run, over all of its sessions."""
        return self._clock() - self._started

    def say(self, kind: Kind, text: str, **fields: Any) -> None:
        """Something has happened. Neither waits nor raises, whatever lock the caller holds."""
        if (number := self._count(kind)) > _MOST_A_MINUTE:
            return
        if number == _MOST_A_MINUTE:
            text += f" (as {_MOST_A_MINUTE} of this kind within a minute: the next are not told)"
        event = Event(
            time_seconds=time.time(),
            elapsed_seconds=self.elapsed_seconds,
            env_steps=self.count_steps(),
            kind=kind,
            is_problem=kind in PROBLEMS,
            text=printable(text, _LONGEST_TEXT),
            fields=fields,
        )
        self._queue.append(event)
        self._has_some.set()

    def _count(self, kind: Kind) -> int:
        """How many of this kind there have been in this minute; two threads may miss one."""
        minute = int(self._clock() / 60)
        if minute != self._minute:
            self._minute, self._counts = minute, collections.Counter()
        self._counts[kind] += 1
        return self._counts[kind]

    def wait(self, timeout: float) -> None:
        """Waits until there is something to flush, or `wake`."""
        self._has_some.wait(timeout)

    def wake(self) -> None:
        """Ends a wait that has begun, or the next one."""
        self._has_some.set()

    def flush(self) -> None:
        """Writes and shows what has been said, in order."""
        with self._lock:
            self._has_some.clear()
            while self._queue:
                event = self._queue.popleft()
                self._file.append(asdict(event))
                self._show(event)

    def close(self) -> None:
        """Flushes, and closes the file."""
        self.flush()
        self._file.close()
