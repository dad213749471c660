"""Keeps the processes of a run alive, and ends them together."""

import contextlib
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NamedTuple, Self

from learner.launch.child import Child, Command
from learner.launch.last_words import last_words, telling_line
from learner.launch.restarts import Restarts
from learner.processes.stop import is_repeat
from seedrl.exit_codes import ExitCode
from seedrl.programs.outcome import ending_signals

# How the reason of a run's end begins if its env servers are that reason.
ENV_SERVERS_FAILED = "the env servers failed"
# An exit code above it is that of a process which a signal has ended.
_FIRST_SIGNAL = 128
_OUR_SIGNAL = _FIRST_SIGNAL + signal.SIGTERM


class _Exit(NamedTuple):
    child: Child
    code: int


class _Signal(NamedTuple):
    number: int
    seconds: float  # when it arrived, by the clock


class _Stop(NamedTuple):
    pass


class Supervisor:
    """Owns a learner (or none, if it is this process) and its env servers; used by one thread.

    Entering starts them. An env server that ends without having said so in its log is started
    again, whatever its exit code, at most `restarts` times a minute each; beyond that it rests for
    a minute at a time while others go on, and if all rest the run ends. One that says that it has
    finished has heard that the run is over; one that says why it ends with 2 refuses what it is
    asked for, one with 6 cannot film it, and either ends the run. Leaving ends whatever still runs.
    If this process is killed, the kernel ends them.

    Attributes:
      has_failed_env_server: whether one has ended with an error, of which its log says more.
    """

    def __init__(
        self,
        env_servers: Sequence[Command],
        *,
        learner: Command | None = None,
        restarts: int,
        give_reason: Callable[[str], None] = lambda reason: None,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
        resume_command: str = "the same command with --workdir",
        start_command: str = "the same command",
    ):
        """Starts nothing yet.

        Args:
          env_servers, learner: what to start.
          restarts: of an env server, at most, within a minute.
          give_reason: takes why the learner gets a SIGTERM, which cannot say so, before it.
          clock, say: monotonic seconds; prints a line.
          resume_command: what resumes the run if the learner was killed.
          start_command: what starts it again if it was ended before it had begun.
        """
        self._commands = env_servers
        self._learner_command = learner
        self._clock, self._say = clock, say
        self._restarts = Restarts([command.name for command in env_servers], restarts, clock)
        self._give_reason, self._resume_command = give_reason, resume_command
        self._start_command = start_command
        # A SimpleQueue may be filled from a signal handler that interrupts its own reader.
        self._events: queue.SimpleQueue[_Exit | _Signal | _Stop] = queue.SimpleQueue()
        self._learner: Child | None = None
        self._env_servers: list[Child] = []
        self.has_failed_env_server = False
        self._is_ending = False  # after the first signal
        self._first_signal: _Signal | None = None
        # Set when the run ends for another reason than the learner's end.
        self._outcome: int | None = None
        self._deadline: float | None = None

    def __enter__(self) -> Self:
        try:
            if self._learner_command is not None:
                self._learner = self._start(self._learner_command)
            self._env_servers = [self._start(command) for command in self._commands]
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_all(may_save=kind is not None)

    def signal(self, number: int) -> None:
        """Reports a SIGTERM, SIGINT or SIGHUP: the first asks the learner to save, a second kills.

        What arrives within a second of the first is the same request; see `is_repeat`.
        """
        self._events.put(_Signal(number, self._clock()))

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal has asked for the end of the run."""
        return self._first_signal is not None

    def stop(self) -> None:
        """Lets `wait` return."""
        self._events.put(_Stop())

    def wait(self) -> int:
        """Supervises until the run is over; returns its `ExitCode`."""
        while True:
            try:
                event = self._events.get(timeout=self._seconds_left())
            except queue.Empty:
                if self._is_expired():
                    return self._expire()
                self._wake()
                continue
            code = self._react(event)
            if code is not None:
                return code

    def _react(self, event: _Exit | _Signal | _Stop) -> int | None:
        """The exit code if the run is over, else None."""
        match event:
            case _Stop():
                return ExitCode.OK
            case _Signal():
                return self._obey(event)
            case _Exit(child, _) if child is self._learner and self._is_unbegun(child):
                assert self._first_signal is not None
                by = signal.Signals(self._first_signal.number).name
                self._say(
                    f"the run ends: a signal asked for it: {by}, before it had begun: nothing was "
                    f"learned or saved; this starts it again: {self._start_command}"
                )
                return ExitCode.OK
            case _Exit(child, code) if child is self._learner:
                if code > _FIRST_SIGNAL and not (self._is_ending and code == _OUR_SIGNAL):
                    self._say_killed(code)
                return code if self._outcome is None else self._outcome
            case _Exit(child, code) if not self._is_ending:
                self._replace(child, code)
                if self._learner is None:
                    return self._outcome
        return None

    def _obey(self, event: _Signal) -> int | None:
        first = self._first_signal
        if is_repeat(None if first is None else first.seconds, event.seconds):
            return None
        if first is not None or self._learner is None:
            return ExitCode.KILLED
        self._first_signal = event
        if self._is_ending:  # because of its env servers: the learner is saving
            return None
        self._is_ending = True
        # Not SIGINT itself: while the learner imports, Python answers it with a traceback.
        self._give_reason(signal.Signals(event.number).name)
        self._learner.send(signal.SIGTERM)
        return None

    def _is_unbegun(self, learner: Child) -> bool:
        """Whether the learner has ended of our SIGTERM: it had not begun to listen for it."""
        is_asked = self._first_signal is not None and self._outcome is None
        return is_asked and learner.is_killed_by(signal.SIGTERM)

    def _say_killed(self, code: int) -> None:
        """It could not say so itself."""
        number = code - _FIRST_SIGNAL
        by = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
        hint = " (out of memory?)" if number == signal.SIGKILL else ""
        self._say(
            f"seedrl: error: the learner was killed by {by}{hint}; this resumes from its newest "
            f"checkpoint, or begins again if it has saved none: {self._resume_command}"
        )

    def _expire(self) -> int:
        """What happens at the deadline; the run's exit code."""
        assert self._outcome is not None
        self._say("the learner did not end in time and is killed")
        return self._outcome

    def _start(self, command: Command) -> Child:
        return Child(command, lambda child, code: self._events.put(_Exit(child, code)))

    def _replace(self, child: Child, code: int) -> None:
        """Starts an env server again, or ends the run, unless it was let go."""
        name, ended = child.command.name, last_words(code, telling_line(child.last_lines()))
        if ended.kind == "finished":
            return
        self.has_failed_env_server = True
        if ended.kind == "in vain":
            self._fail(code, f"{name} {ended.verb}: {ended.reason}")
            return
        verdict = self._restarts.died(name)
        log = child.command.log
        if verdict == "again":
            self._say(f"{name} ended with {code} and is started again; its log: {log}")
            self._restart(child)
            return
        used = self._restarts.used(name)
        again = f" and was started again {used} times within a minute"
        line = (
            f"{name} ended with {code}{again if used else ''}; its log, {log}, ends: {ended.reason}"
        )
        if verdict == "all rest":
            self._fail(ExitCode.FAILING_ENVIRONMENT, line)
        elif verdict == "rests":
            self._say(f"{line}; the run goes on without it, and it is tried again every minute")

    def _restart(self, child: Child) -> None:
        """Starts an env server in its place."""
        command = next(each for each in self._commands if each.name == child.command.name)
        self._env_servers[self._env_servers.index(child)] = self._start(command)

    def _wake(self) -> None:
        """Starts those again that have rested."""
        for name in self._restarts.take_due():
            self._restart(next(each for each in self._env_servers if each.command.name == name))

    def _fail(self, outcome: int, line: str) -> None:
        self._say(f"seedrl: error: {line}")
        self._outcome, self._is_ending = outcome, True
        if self._learner is not None:
            self._deadline = self._clock() + self._learner.command.grace_seconds
            self._give_reason(f"{ENV_SERVERS_FAILED}: {line}")
            self._learner.send(signal.SIGTERM)

    def _is_expired(self) -> bool:
        return self._deadline is not None and self._clock() >= self._deadline

    def _seconds_left(self) -> float | None:
        """Until the deadline; without one, until somebody has rested."""
        if self._deadline is not None:
            return max(0.0, self._deadline - self._clock())
        rest = None if self._is_ending else self._restarts.seconds_left()
        return None if rest is None else max(0.0, rest)

    def _end_all(self, *, may_save: bool = False) -> None:
        # It has ended, or had its time in `wait`, unless that has raised.
        if self._learner is not None:
            if may_save and not self._is_ending:
                self._learner.send(signal.SIGTERM)
            self._learner.end(self._learner.command.grace_seconds if may_save else 0.0)
        for child in self._env_servers:
            child.send(signal.SIGTERM)
        asked = time.monotonic()
        for child in self._env_servers:
            child.end(asked + child.command.grace_seconds - time.monotonic())


class LateReceiver:
    """Takes signals for a receiver, and keeps them until there is one."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._receiver: Callable[[int], None] = self._kept.append

    def __call__(self, number: int) -> None:
        """Takes a signal."""
        self._receiver(number)

    def deliver_to(self, receiver: Callable[[int], None]) -> None:
        """From now on `receiver` gets the signals; first those that have been kept."""
        self._receiver = receiver
        for number in self._kept:
            receiver(number)


@contextlib.contextmanager
def forward_signals(receiver: Callable[[int], None]) -> Iterator[None]:
    """Inside, `ending_signals` of this process go to `receiver`. For the main thread only."""

    def forward(number: int, _: FrameType | None) -> None:
        receiver(number)

    numbers = ending_signals()
    before = [signal.signal(number, forward) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
