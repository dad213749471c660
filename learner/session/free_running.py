"""Free running: acting and learning at the same time, each in a thread of its own.

Acting begins as soon as its own programs are compiled. Those of learning take longer, and replay
has to fill anyway: learning inserts pages once insertion is compiled. What acting does ahead of it
stays bounded by the rate limiter, which learns here when replay would be ready.
"""

from concurrent.futures import Future, ThreadPoolExecutor, wait

from learner.acting.loop import Acting
from learner.learning.loop import POLL_SECONDS, Learning
from learner.threads.rate_limiter import RateLimiter
from seedrl.types import Page


class FreeRunning:
    """Compiles for both threads. `learn_once` is the body of the learning thread's loop.

    Owns the thread that compiles for learning; the process does not end before that thread has.
    """

    def __init__(self, acting: Acting, learning: Learning, limiter: RateLimiter):
        self._acting = acting
        self._learning = learning
        self._limiter = limiter
        self._first_step = acting.training_steps
        self._insertion: Future[None] = Future()
        self._update: Future[None] = Future()

    def warm_up(self, page: Page, page_rows: tuple[int, ...]) -> None:
        """Compiles what acting runs, and begins with what learning does; see `Learning.warm_up`."""
        # One after the other: both would share the interpreter, and acting begin later.
        self._acting.warm_up()
        pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._insertion = pool.submit(self._learning.compile_insertion, page, page_rows)
        self._update = pool.submit(self._compile_update)
        pool.shutdown(wait=False)

    def _compile_update(self) -> None:
        # The process would only end after it.
        if self._insertion.exception() is None:
            self._learning.compile_update()

    def cancel(self) -> None:
        """What has not begun to compile is not needed any more: the run ends."""
        self._update.cancel()

    @property
    def is_compiling(self) -> bool:
        """Whether learning cannot do all of its work yet."""
        return not self._update.done()

    def learn_once(self) -> None:
        """Does what of learning's work is compiled. Raises what compiling it has raised."""
        if not _is_over(self._insertion):
            self._learning.snapshots.answer()
            steps = self._acting.training_steps - self._first_step
            # As if what was sent had been inserted: otherwise acting would owe nothing for it.
            self._limiter.holds(self._learning.num_sequences_per_shard(steps))
        elif not _is_over(self._update):
            self._learning.run_without_update()
        else:
            self._learning.run_once()


def _is_over(compilation: Future[None]) -> bool:
    if not compilation.done() or compilation.cancelled():
        wait([compilation], POLL_SECONDS)
        return False
    compilation.result()
    return True
