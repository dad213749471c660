"""Seeds of the jitted act, insert and learn programs, with real acting and learning around them.

Even seeds choose among actions, odd ones take real numbers: each is compiled for one store only.

Many more seeds of both: `python -m tests.simulation --programs 500`.
"""

import pytest

from tests.simulation.program_learner import ProgramLearner
from tests.simulation.queue_learner import QueueLearner
from tests.simulation.sweep import CALM_SECONDS, sweep


def test_nothing_is_mixed_up_on_the_device_either() -> None:
    found = sweep(range(0, 10, 2), ProgramLearner, calm_seconds=CALM_SECONDS)
    assert found.broken == {}
    assert found.seen["updates"] > 10
    assert found.seen["sessions"] > found.seeds
    assert min(found.seen[f"checked {what}"] for what in ("action", "page", "sequence")) > 400
    assert found.seen["checked reset"] > 0  # by rounds of evaluation


@pytest.mark.gate  # real agents: tests/learner/learning/test_learning_on_policy.py
def test_the_on_policy_queue_trains_on_each_sequence_once() -> None:
    found = sweep(range(1, 10, 2), QueueLearner, calm_seconds=CALM_SECONDS)
    assert found.broken == {}
    assert found.seen["updates"] > 10
    assert found.seen["sessions"] > found.seeds
    assert min(found.seen["checked action"], found.seen["checked page"]) > 150
