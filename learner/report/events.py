"""Events of a run: each is printed on the terminal and appended to `events.jsonl`."""

import collections
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from learner.report.json_lines import JsonLines
from seedrl.run_files import EVENTS
from seedrl.wire.contract import printable

# What a user filters by, with the fields of the event: the source of docs/events.md.
KINDS = {
    "started": "the learner serves env servers: `address`, `devices`, `workdir`",
    "resumed": "the session starts from a checkpoint of this run or of another one "
    "(`--init-from`): `path`, `updates`, and for a resumed run `env_steps` and `age_seconds`; "
    "`path` is null if no earlier session has saved a checkpoint. With `--init-from-partial` "
    "another one, without fields, lists the copied layers",
    "changed": "a field of the configuration differs from the resumed checkpoint: `field`, "
    "`before`, `now`",
    "learning": "one of: how the network reads observations; compiling starts (`replay_bytes`) or "
    "ends (`seconds`); the first update is applied; updates are skipped or sequences dropped "
    "(`number`, at most one event a minute); episodes lack a metric (`names`) or do not end "
    "(`role`, `steps`); metrics show that the run may not learn (`sign`); the learning rate will "
    "be 0 before the run ends",
    "evaluation": "a round of evaluation ends (of rounds below the target at most one in "
    "`logging.interval_seconds` is reported): `mean_return`, `episodes`, `updates` and "
    "`env_steps` of the parameters, `ended_env_steps`, `is_confirmation`; `outcome` is `below`, "
    "`nominated` (the target is reached, and `evaluation.confirm_episodes` must confirm it) or "
    "`confirmed` (the run ends). Without fields: the evaluation of the last parameters starts, or "
    "is given up",
    "balance": "`--balance auto` changes a setting of the live run, or has measured the change: "
    "`before` and `after` (`env_servers`, `groups`, `batch_deadline_seconds`), `predicted` and "
    "`measured` gain of environment steps (0.25 is a quarter more; null at first), `is_kept`",
    "saved": "a checkpoint is durable: `path`, `updates`, `seconds`",
    "save_failed": "a checkpoint could not be written, or not within `logging.stuck_seconds`; "
    "training continues: `reason`",
    "waiting": "no training environment has stepped for 10 s, or for twice as long as was last "
    "reported for the same reason (`seconds`, `waiting_for`), or an env server exceeds "
    "`serving.step_deadline_seconds` (`server`, `groups`); another event when this is over",
    "server_joined": "an env server has built its environments: `server`, `training` and "
    "`evaluation` environments; `away_seconds` if it has reconnected, else null",
    "server_left": "the connection of an env server ended during the run: `server`, `reason`; no "
    "problem while `--balance auto` releases env servers",
    "server_refused": "an env server is refused: no slot is free, its token is wrong, it breaks "
    "the protocol, or its environment cannot be built or differs; once for each reason: `server`, "
    "`reason`",
    "environment_failed": "an environment raised an exception, or its env server disabled it "
    "because it fails too often: `server`, `failures` so far, `disabled` environments, `reason`. "
    "After three, one event a minute for each env server",
    "ended": "the run is over: `reason`",
}
# Events of other kinds may be a problem, too: the caller decides.
_PROBLEMS = frozenset({"save_failed", "server_left", "server_refused", "environment_failed"})

# Parts of it are sent by other machines.
_LONGEST_TEXT = 500
# The time without a step after which that is reported, and then at each doubling.
_STILL_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that has happened.

    Attributes:
      time_seconds: Unix time.
      elapsed_seconds: time of the run, over all of its sessions.
      env_steps: training environment steps of the run at that time.
      kind: one of the kinds below.
      is_problem: true if a person should look at it.
      text: one readable line.
      fields: the names and numbers in the text.
    """

    time_seconds: float
    elapsed_seconds: float
    env_steps: int
    kind: str
    is_problem: bool
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)


class EventSink:
    """Takes events, from any thread; this one drops them."""

    def report(self, kind: str, text: str, *, is_problem: bool = False, **fields: Any) -> None:
        """Takes an event; neither waits nor raises."""


NO_SINK = EventSink()


class Events(EventSink):
    """Takes events from any thread without blocking it; `flush` writes and shows them.

    Owns `workdir/events.jsonl`, to which each session of the run appends. A disk that refuses a
    line is reported as an error, and the run continues.
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
        """`show` prints an event; seconds and steps are of earlier sessions of the run."""
        self._show = show
        self._clock = clock
        self._started = clock() - elapsed_seconds
        # Training environment steps of the run; another function once the session knows them.
        self.count_steps: Callable[[], int] = lambda: env_steps
        # True while env servers leave because the run releases them.
        self.is_releasing: Callable[[], bool] = lambda: False
        # Any thread appends, which is atomic; the one that flushes takes from the front. `report`
        # takes no lock, because its caller may hold the hub's, and `flush` writes to a disk that
        # may be slow.
        self._queue: collections.deque[Event] = collections.deque()
        self._has_some = threading.Event()
        self._file = JsonLines(workdir / EVENTS)

    @property
    def elapsed_seconds(self) -> float:
        return self._clock() - self._started

    def report(self, kind: str, text: str, *, is_problem: bool = False, **fields: Any) -> None:
        """Takes an event. Neither waits nor raises, whatever lock the caller holds."""
        # Of a few seconds: one that dies in them is shown, too.
        is_released = kind == "server_left" and self.is_releasing()
        remark = " (env servers are being released)" if is_released else ""
        event = Event(
            time_seconds=time.time(),
            elapsed_seconds=self.elapsed_seconds,
            env_steps=self.count_steps(),
            kind=kind,
            is_problem=is_problem or (kind in _PROBLEMS and not is_released),
            # Here, not only where it is shown: other programs print `events.jsonl`.
            text=printable(text + remark, _LONGEST_TEXT),
            fields=fields,
        )
        self._queue.append(event)
        self._has_some.set()

    def wait(self, timeout: float) -> None:
        """Waits until there is something to flush, or `wake`."""
        self._has_some.wait(timeout)

    def wake(self) -> None:
        self._has_some.set()

    def flush(self) -> None:
        """Writes and shows the events taken so far, in order. Called by one thread at a time."""
        # Cleared first: an event that arrives after the loop sets it again.
        self._has_some.clear()
        while self._queue:
            event = self._queue.popleft()
            # Before it is shown: what a user has seen can be looked up.
            self._file.append(event)
            self._show(event)

    def close(self) -> None:
        self.flush()
        self._file.close()


class StandStill:
    """Reports that environments take no steps: for 10 s, or twice as long as last for that reason.

    So synchronous updates of 15 s are reported once. Of one thread.
    """

    def __init__(self, events: EventSink, steps: int, now: float):
        self._events = events
        self._steps, self._moved = steps, now
        self._due: dict[str, float] = {}  # seconds, by reason
        self._is_reported = False

    def look(self, steps: int, now: float, waiting_for: str) -> None:
        """Takes the number of steps, and the reason why there are no new ones."""
        seconds = now - self._moved
        if steps == self._steps:
            if seconds >= self._due.get(waiting_for, _STILL_SECONDS):
                text = f"0 steps/s for {seconds:.0f} s: {waiting_for}"
                self._report(text, seconds, waiting_for)
                self._due[waiting_for] = 2 * seconds
                self._is_reported = True
            return
        if self._is_reported:
            self._report(f"environments step again after {seconds:.0f} s", seconds, "")
        self._steps, self._moved, self._is_reported = steps, now, False

    def _report(self, text: str, seconds: float, waiting_for: str) -> None:
        about = {"seconds": seconds, "waiting_for": waiting_for}
        self._events.report("waiting", text, is_problem=bool(waiting_for), **about)
