"""How acting and learning share time: each in its own thread, or in lock step in one."""

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from learner.learning.snapshot import Snapshot
from learner.saving.recorder import Recorder
from learner.serving.hub import Hub
from learner.session.components import Parts
from learner.session.free_running import FreeRunning
from learner.session.lock_step import LockStep
from learner.threads.snapshot_requests import Snapshots


class Pace(NamedTuple):
    """The threads of a session.

    Attributes:
      warm_up: compiles what must be compiled before the threads start.
      is_compiling: whether something else still is; that may take as long as it likes.
      bodies: what each thread repeats, by its name.
      snapshots: taken by one of them while they run, or by anybody after they have ended.
      end_waits: makes those that wait for each other look up, so that they can end.
    """

    warm_up: Callable[[], None]
    is_compiling: Callable[[], bool]
    bodies: Mapping[str, Callable[[], object]]
    snapshots: Snapshots[Snapshot]
    end_waits: Callable[[], None]


def compile_all(parts: Parts) -> None:
    """Compiles what acting and learning run, at the same time."""
    with ThreadPoolExecutor(2, thread_name_prefix="compile") as pool:
        for compiled in (
            pool.submit(parts.acting.warm_up),
            pool.submit(parts.learning.warm_up, parts.page, parts.page_rows),
        ):
            compiled.result()


def free_running(parts: Parts, hub: Hub) -> Pace:
    """Acting and learning at the same time; whichever is ahead waits."""
    free = FreeRunning(parts.acting, parts.learning, parts.exchange.limiter)

    def end_waits() -> None:
        free.cancel()
        parts.exchange.limiter.close()
        parts.exchange.pages.close()
        hub.wake()

    return Pace(
        functools.partial(free.warm_up, parts.page, parts.page_rows),
        lambda: free.is_compiling,
        {"acting": parts.acting.run_once, "learning": free.learn_once},
        parts.learning.snapshots,
        end_waits,
    )


def in_lock_step(parts: Parts, hub: Hub, recorder: Recorder | None) -> Pace:
    """Acting and learning in turn; see `learner.session.lock_step`."""
    lock_step = LockStep(
        parts.acting,
        parts.learning,
        hub=hub,
        limiter=parts.exchange.limiter,
        recorder=recorder,
    )

    # Limiter and channel stay open: a round that has begun is finished, so that it can be saved.
    return Pace(
        functools.partial(compile_all, parts),
        lambda: False,
        {"lock step": lock_step.run_once},
        lock_step.snapshots,
        hub.wake,
    )
