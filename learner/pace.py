"""How acting and learning share time: each in its own thread, or in lock step in one."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from learner.assembly import Parts
from learner.lobby import Lobby
from learner.lock_step import LockStep
from learner.recorder import Recorder
from learner.snapshots import Snapshots


class Pace(NamedTuple):
    """The threads of a session.

    Attributes:
      bodies: what each thread repeats, by its name.
      snapshots: taken by one of them while they run, or by anybody after they have ended.
      end_waits: makes those that wait for each other look up, so that they can end.
    """

    bodies: Mapping[str, Callable[[], object]]
    snapshots: Snapshots
    end_waits: Callable[[], None]


def free_running(parts: Parts, lobby: Lobby) -> Pace:
    """Acting and learning at the same time; whichever is ahead waits."""

    def end_waits() -> None:
        parts.limiter.close()
        parts.pages.close()
        lobby.wake()

    return Pace(
        {"acting": parts.acting.run_once, "learning": parts.learning.run_once},
        parts.learning.snapshots,
        end_waits,
    )


def in_lock_step(parts: Parts, lobby: Lobby, recorder: Recorder | None) -> Pace:
    """Acting and learning in turn; see `learner.lock_step`."""
    lock_step = LockStep(
        parts.acting,
        parts.learning,
        lobby=lobby,
        limiter=parts.limiter,
        recorder=recorder,
    )
    # Limiter and channel stay open: a round that has begun is finished, so that it can be saved.
    return Pace({"lock step": lock_step.run_once}, lock_step.snapshots, lobby.wake)
