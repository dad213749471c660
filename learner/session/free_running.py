"""Free running: acting and learning at the same time, each in a thread of its own.

Acting begins as soon as its program for the largest batch is compiled. Those of learning take
longer, and replay has to fill anyway: learning inserts pages once insertion is compiled. What
acting does ahead of it stays bounded by the rate limiter, which learns here when replay would be
ready.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from learner.learning.allocation import require_update_memory
from learner.learning.loop import POLL_SECONDS
from learner.session.components import Parts


class FreeRunning:
    """Work for a thread that learns and one for each inference device: a `Regime` of the session.

    Compiles for all. Owns the thread that compiles for learning; the process does not end before
    that thread has.
    """

    def __init__(self, parts: Parts):
        self._parts = parts
        self._learning = parts.learning
        self._totals = parts.acting[0].totals
        self._first_step = self._own_steps
        names = ["acting", *(f"acting {number}" for number in range(1, len(parts.acting)))]
        self.bodies: Mapping[str, Callable[[], object]] = {
            **{name: each.run_once for name, each in zip(names, parts.acting, strict=True)},
            "learning": self.learn_once,
        }
        self.snapshots = parts.learning.snapshots
        self._insertion: Future[None] = Future()
        self._update: Future[None] = Future()

    def warm_up(self) -> None:
        """Compiles what acting needs to begin, and lets a thread compile all else."""
        # One after the other: both would share the interpreter, and acting begin later.
        self._parts.acting[0].warm_up_largest()
        # The others have the same programs on their devices: XLA compiles them side by side.
        others = self._parts.acting[1:]
        with ThreadPoolExecutor(max(1, len(others)), thread_name_prefix="compile") as pool:
            for compiled in [pool.submit(each.warm_up_largest) for each in others]:
                compiled.result()
        pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._insertion = pool.submit(self._compile_insertion)
        self._update = pool.submit(self._compile_update)
        pool.shutdown(wait=False)

    def _compile_insertion(self) -> None:
        parts = self._parts
        # What is wrong with a user's own loss shows here, and not after a minute of compiling.
        parts.learning.trace_update()
        # What acting is waiting for first: until then it pads every batch to the largest.
        for acting in parts.acting:
            acting.compile_others()
        parts.learning.compile_insertion(parts.page, parts.page_rows)

    def _compile_update(self) -> None:
        # The process would only end after it.
        if self._insertion.exception() is None:
            compiled = self._learning.compile_update()
            require_update_memory(compiled, self._parts.scale, self._parts.pages_bytes)

    def end_waits(self) -> None:
        """Wakes both threads for the last time; what has not begun to compile is not needed."""
        self._update.cancel()
        exchange = self._parts.exchange
        exchange.limiter.close()
        exchange.is_closed = True
        exchange.wake_acting()

    @property
    def is_compiling(self) -> bool:
        """Whether learning cannot do all of its work yet, or never will, because the run has ended
        or compilation failed: then the thread that learns raises the error.
        """
        if not self._update.done() or self._update.cancelled():
            return True
        # `exception` of what is not done would wait, and of what is cancelled would raise.
        done = [each for each in (self._insertion, self._update) if each.done()]
        return any(not each.cancelled() and each.exception() is not None for each in done)

    @property
    def can_insert(self) -> bool:
        """Whether insertion is compiled."""
        return self._insertion.done() and self._insertion.exception() is None

    @property
    def _own_steps(self) -> int:
        """Without those of other hosts."""
        return sum(self._totals.steps[: len(self._parts.acting)])

    def learn_once(self) -> None:
        """Does what of learning's work is compiled. Raises what compiling it has raised."""
        if not _is_over(self._insertion):
            self._learning.snapshots.answer()
            steps = self._own_steps - self._first_step
            # As if what was sent had been inserted: otherwise acting would owe nothing for it.
            held = self._learning.sequences_of_shards(steps)
            self._parts.exchange.limiter.holds(held)
            self._parts.exchange.limiter.abstain()
        elif not _is_over(self._update):
            self._learning.run_without_update()
            self._parts.exchange.limiter.abstain()
        else:
            self._learning.run_once()


def _is_over(compilation: Future[None]) -> bool:
    if not compilation.done() or compilation.cancelled():
        wait([compilation], POLL_SECONDS)
        return False
    compilation.result()
    return True
