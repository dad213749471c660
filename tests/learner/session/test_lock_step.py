"""A round of lock step: what comes after what, and when a snapshot may be taken."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from learner.learning.loop import Snapshot
from learner.session.lock_step import LockStep

STEPS = 4  # of a batch


class Acting:
    """Has batches as long as `owed` says how many updates each brings."""

    def __init__(self, calls: list[str], owed: list[int]) -> None:
        self.calls, self.owed = calls, owed
        self.training_steps = 0
        self.due = 0

    def run_once(self) -> Any:
        if not self.owed:
            return None
        self.calls.append("act")
        self.due += self.owed.pop(0)
        self.training_steps += STEPS
        return self.training_steps, "actions"

    def snapshot(self) -> Any:
        return (np.int32(self.training_steps),)


class Learning:
    """Takes the updates that are due."""

    def __init__(self, calls: list[str], acting: Acting) -> None:
        self.calls, self.acting = calls, acting

    def run_once(self) -> bool:
        if not self.acting.due:
            return False
        self.calls.append("learn")
        self.acting.due -= 1
        return True

    def finish_update(self) -> None:
        self.calls.append("finish")

    def final_snapshot(self, with_replay: bool) -> Snapshot:
        self.calls.append(f"snapshot {with_replay}")
        nothing: Any = ()
        return Snapshot(nothing, [], nothing)


class Run:
    """LockStep over such parts, and what it has called, in order."""

    def __init__(self, owed: list[int]) -> None:
        self.calls: list[str] = []
        acting = Acting(self.calls, owed)
        limiter = SimpleNamespace(now=SimpleNamespace(counts=lambda: {"env_steps": 8}))
        parts: Any = SimpleNamespace(
            acting=[acting],
            learning=Learning(self.calls, acting),
            exchange=SimpleNamespace(limiter=limiter),
        )
        hub: Any = SimpleNamespace(streams_state=lambda: {"num_batches": 3})
        recorder: Any = SimpleNamespace(
            append=lambda batch, actions: self.calls.append(f"record {batch} {actions}"),
            sync=lambda: self.calls.append("sync"),
        )
        self.lock_step = LockStep(parts, hub, recorder)


def test_a_round_learns_all_that_its_batch_has_come_to_owe() -> None:
    run = Run([0, 2, 1])
    for _ in range(2):
        run.lock_step.run_once()
    update = ["learn", "finish"]
    assert run.calls == ["act", "record 4 actions", "act", "record 8 actions", *update, *update]


def test_a_snapshot_is_taken_when_the_round_is_over_and_says_so() -> None:
    run = Run([1])
    answer = run.lock_step.snapshots.request(True)
    run.lock_step.run_once()
    assert run.calls == ["act", "record 4 actions", "learn", "finish", "sync", "snapshot True"]
    snapshot = answer.result(timeout=0.0)
    assert snapshot.acting == (STEPS,)
    assert snapshot.meta == {
        "env_steps": STEPS,
        "limiter": {"env_steps": 8},
        "streams": {"num_batches": 3},
    }
    run.lock_step.run_once()
    assert run.calls[-1] == "snapshot True"  # asked for once, taken once


def test_snapshots_are_taken_when_no_batch_comes_too() -> None:
    run = Run([])
    answer = run.lock_step.snapshots.request(False)
    run.lock_step.run_once()
    assert answer.done()
