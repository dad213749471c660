"""When a run of ours had learned, as its metrics say."""

import dataclasses
import json

import pytest

from learner.bench.rigs import workloads
from tests.benchmarks.peers.sb3 import Learned, learned

CONFIG = workloads.cartpole().config
STARTED = 1_000.0


def evaluation(at: float, mean: float, steps: int, *, is_confirmation: bool = False) -> str:
    return json.dumps(
        {
            "kind": "evaluation",
            "time_seconds": STARTED + at,
            "mean_return": mean,
            "env_steps": steps,
            "is_confirmation": is_confirmation,
        }
    )


def test_the_first_score_and_the_one_that_held() -> None:
    lines = [
        json.dumps({"kind": "metrics", "time_seconds": STARTED, "env_steps": 0}),
        evaluation(10.0, 474.9, 1_000),
        evaluation(20.0, 475.0, 2_000),
        evaluation(30.0, 470.0, 3_000, is_confirmation=True),
        evaluation(40.0, 500.0, 4_000),
        evaluation(50.0, 490.0, 5_000, is_confirmation=True),
    ]
    assert learned(lines, STARTED, CONFIG) == Learned(20.0, 2_000, 50.0, 5_000)


def test_a_run_whose_candidates_did_not_hold_has_not_learned() -> None:
    lines = [evaluation(20.0, 500.0, 2_000), evaluation(30.0, 3.0, 3_000, is_confirmation=True)]
    with pytest.raises(RuntimeError, match="expected a run that reaches 475"):
        learned(lines, STARTED, CONFIG)


def test_the_target_is_that_of_the_configuration() -> None:
    config = dataclasses.replace(
        CONFIG, evaluation=dataclasses.replace(CONFIG.evaluation, target_return=100.0)
    )
    lines = [evaluation(1.0, 100.0, 10), evaluation(2.0, 101.0, 20, is_confirmation=True)]
    assert learned(lines, STARTED, config) == Learned(1.0, 10, 2.0, 20)
