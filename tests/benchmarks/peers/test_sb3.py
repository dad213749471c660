"""When a run had learned, as its metrics say."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.benchmarks.peers.sb3 import Learned, learned, results


def evaluation(
    at: float, mean: float, steps: int, *, is_confirmation: bool = False
) -> dict[str, Any]:
    return {
        "kind": "evaluation",
        "elapsed_seconds": at,
        "mean_return": mean,
        "env_steps": steps,
        "is_confirmation": is_confirmation,
    }


def elapsed(line: Mapping[str, Any]) -> float:
    return float(line["elapsed_seconds"])


def test_the_first_score_and_the_one_that_held() -> None:
    lines = [
        {"kind": "metrics", "elapsed_seconds": 1.0, "env_steps": 0},
        evaluation(10.0, 474.9, 1_000),
        evaluation(20.0, 475.0, 2_000),
        evaluation(30.0, 470.0, 3_000, is_confirmation=True),
        evaluation(40.0, 500.0, 4_000),
        evaluation(50.0, 490.0, 5_000, is_confirmation=True),
    ]
    assert learned(lines, elapsed) == Learned(20.0, 2_000, 50.0, 5_000)


def test_a_run_is_not_read_beyond_its_confirmed_score() -> None:
    def lines() -> Iterator[dict[str, Any]]:
        yield evaluation(1.0, 500.0, 1_000)
        yield evaluation(2.0, 500.0, 2_000, is_confirmation=True)
        raise AssertionError("it is asked for more")

    assert learned(lines(), elapsed) == Learned(1.0, 1_000, 2.0, 2_000)


def test_a_run_whose_candidates_did_not_hold_has_not_learned() -> None:
    lines = [evaluation(20.0, 500.0, 2_000), evaluation(30.0, 3.0, 3_000, is_confirmation=True)]
    with pytest.raises(RuntimeError, match="expected a run whose score of 475 is confirmed"):
        learned(lines, elapsed)


def test_each_of_ours_stands_beside_each_of_theirs() -> None:
    ours = ("cartpole_r2d2", "cartpole_impala", "cartpole_ppo")
    theirs = ("Stable-Baselines3 DQN", "Stable-Baselines3 PPO")
    runs = {name: [Learned(1.0, 2, 3.0, 4)] for name in ours}
    runs |= {name: [Learned(10.0, 20, 30.0, 40)] for name in theirs}
    found = [*results(runs)]
    held = {each.name: each for each in found if "both to a score that holds" in each.name}
    between = {
        (each.name.split()[3], each.limit_name): each.ratio.median
        for each in held.values()
        if each.limit_name in theirs
    }
    assert between == {(mine, other): 0.1 for mine in ours for other in theirs}
    assert {each.limit_name: each.target for each in held.values() if each.target} == {
        "cartpole_r2d2": 0.8
    }
    assert len({each.name for each in found}) == len(found)
