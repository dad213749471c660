"""A thread for each group of environments, so that one that takes its time holds back no other."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from seedrl.wire.framing import WireError

Result = TypeVar("Result")


class GroupThreads:
    """Does the work of each group in a thread of the group's own. Owns the threads until `close`.

    A group's environments are built, stepped and closed in one thread: there are some that bear no
    other. All methods are for the one thread that hands the work over.

    Attributes:
      error: what work that was handed over has raised; the first of it.
    """

    def __init__(self, num_groups: int, on_error: Callable[[BaseException], object]) -> None:
        """Starts the threads. `on_error` takes what `error` becomes, in the thread that raised."""
        self.error: BaseException | None = None
        self._on_error = on_error
        self._busy = [False] * num_groups
        # None ends a thread.
        self._work: list[queue.SimpleQueue[Callable[[], object] | None]] = [
            queue.SimpleQueue() for _ in range(num_groups)
        ]
        self._threads = [
            threading.Thread(target=_run, args=(work,), name=f"group {group}", daemon=True)
            for group, work in enumerate(self._work)
        ]
        for thread in self._threads:
            thread.start()

    def hand_over(
        self, group: int, step: Callable[[], Result], send: Callable[[Result], object]
    ) -> None:
        """Has the group's thread send what `step` gives; returns at once.

        Raises WireError if that thread has not begun to send what it was given before: a learner
        must not fill this process's memory with actions.
        """
        if self._busy[group]:
            raise WireError(f"expected no actions for group {group} before its next step, got some")
        self._busy[group] = True

        def work() -> None:
            try:
                result = step()
                self._busy[group] = False  # first: as soon as it is sent the learner may answer
                send(result)
            except BaseException as error:  # nobody else would learn of it
                self._fail(error)

        self._work[group].put(work)

    def call(self, group: int, work: Callable[[], Result]) -> Result:
        """Waits for what `work` gives in the group's thread; raises what it raises."""
        result: Future[Result] = Future()

        def settle() -> None:
            try:
                result.set_result(work())
            except BaseException as error:  # whatever it is, it is for who waits
                result.set_exception(error)

        self._work[group].put(settle)
        return result.result()

    def close(self) -> None:
        """Ends the threads, each after all its work."""
        for work in self._work:
            work.put(None)
        for thread in self._threads:
            thread.join()

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            self._on_error(error)


def _run(work: queue.SimpleQueue[Callable[[], object] | None]) -> None:
    for each in iter(work.get, None):
        each()
