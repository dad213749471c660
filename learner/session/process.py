"""What a learner changes of its process: signal handlers, and how Python, memory and jax behave."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jax

from learner.launch.malloc_settings import keep_freed_memory
from learner.launch.repeats import is_repeat
from learner.launch.xla_settings import compile_quick_convolutions
from learner.threads.turns import take_turns_fast
from seedrl.exit_codes import ExitCode
from seedrl.programs.ending_signals import ending_signals
from seedrl.wire.printable import LONGEST_FROM_LEARNER, printable

# How long a picture may take, and all of an end that was asked for.
_PATIENT_SECONDS = 60.0
_ASKED_SECONDS = 10.0


class StopRequest:
    """Set when the run is to end.

    No `threading.Event`: that has a lock, and a signal handler may interrupt whoever holds it, even
    another signal's. The main thread looks at it again and again.

    Attributes:
      by: who asked for it first, in words.
      command: what starts the run again.
      first_signal: when the first of `ending_signals` arrived, in seconds of a monotonic clock.
    """

    by = ""
    command = ""
    first_signal: float | None = None
    _is_set = False

    def set(self) -> None:
        """Asks for the end. Safe in a signal handler."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether the run is to end."""
        return self._is_set

    def seconds_to_end(self, now: float | None = None) -> float:
        """How long may be spent at the end, once all is saved, on what is merely nice to have.

        Who has asked for the end has other plans for this machine: all in all it gets ten seconds.
        """
        if not self.is_set():
            return _PATIENT_SECONDS
        if self.first_signal is None:
            return _ASKED_SECONDS
        left = self.first_signal + _ASKED_SECONDS - (time.monotonic() if now is None else now)
        return max(0.0, left)


def stop_on_signals(
    reason: Path | None = None,
    *,
    command: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> StopRequest:
    """A request that the first of `ending_signals` sets; the second ends the process, with 143.

    What arrives within a second of the first is the same request; see `is_repeat`.

    The kernel sends SIGUSR1 when `seedrl train` has died, once for each of its threads that
    was this process's parent for a moment: it sets the request however often it arrives.

    Nothing sets it outside the main thread, which alone may handle signals.

    `reason`: a file that may say why a signal was sent; its sender writes it first. `command`: see
    `StopRequest`.
    """
    stop = StopRequest()
    stop.command = command
    if threading.current_thread() is not threading.main_thread():
        return stop

    def handle(number: int, frame: object) -> None:
        now = clock()
        if is_repeat(stop.first_signal, now):
            return
        if stop.first_signal is not None:
            os._exit(ExitCode.KILLED)
        stop.first_signal = now
        stop.by = stop.by or _text(reason) or signal.Signals(number).name
        stop.set()

    def orphan(number: int, frame: object) -> None:
        stop.by = stop.by or "seedrl train has ended"
        stop.set()

    for number in ending_signals():
        signal.signal(number, handle)
    signal.signal(signal.SIGUSR1, orphan)
    return stop


def _text(path: Path | None) -> str:
    if path is not None:
        with contextlib.suppress(OSError):
            return printable(path.read_text(errors="replace"), LONGEST_FROM_LEARNER)
    return ""


def tune_process(*, keeps_freed_memory: bool) -> None:
    """Keeps compiled programs between runs, lets threads take turns fast, and sets XLA's flags.

    `keeps_freed_memory`: see `LearningConfig.keep_freed_memory`.
    """
    if keeps_freed_memory:
        keep_freed_memory()
    take_turns_fast()
    compile_quick_convolutions()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seedrl" / "jax"
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
