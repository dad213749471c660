"""Every kind of action is learned: tasks that pay for repeating what they show.

Three choices at once, seeds 0 to 4: PPO reaches 7.6 of 8 in the first 3,616 steps, IMPALA after
22,848 to 34,000. Two cores that ran 25 to 50 other processes; 2026-11-27, commit af214706.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedrl import policy
from tests.system.matching_environment import STEPS, Matching
from tests.system.processes import TRAIN, Programs

pytestmark = [pytest.mark.gate, pytest.mark.timeout(900)]
_ENVIRONMENT = "tests.system.matching_environment:make"
# Of at most 8; without bounds of at most 0, where the best of actions that are constant gets -12.
_TARGETS = {"several": 7.6, "binary": 7.6, "unbounded": -1.2}
# Of the same parameters in other episodes.
_PLAYED = {"several": 7.0, "binary": 7.0, "unbounded": -2.4}


@pytest.mark.parametrize(
    ("config", "kind", "seed"),
    [
        *(("default_ppo", "several", seed) for seed in range(5)),
        *(("default_impala", "several", seed) for seed in range(5)),
        ("default_ppo", "binary", 0),
        ("default_ppo", "unbounded", 0),
        ("default_impala", "unbounded", 0),
    ],
)
def test_a_kind_of_action_is_learned_and_played(
    config: str, kind: str, seed: int, programs: Programs, tmp_path: Path
) -> None:
    folder, arguments = tmp_path / "run", json.dumps({"kind": kind})
    run = programs(
        *(*TRAIN, config, "--workdir", folder, "--seed", seed, "--environment.id", _ENVIRONMENT),
        *("--environment.arguments", arguments, "--logging.no-learning-curve"),
        *("--learning.total-steps", 1_000_000, "--evaluation.target-return", _TARGETS[kind]),
        *("--evaluation.interval-steps", 2_000, "--evaluation.interval-seconds", 0.1),
        *("--agent.gamma", 0),  # each step is a task of its own
    )
    assert run.end() == 0, run.stderr
    if seed:
        return
    evaluate = ("learner.cli.main", "evaluate", folder, "--allow", _ENVIRONMENT, "--json")
    played = programs(*evaluate, "--episodes", 20)
    assert played.end() == 0, played.stderr
    assert json.loads(played.stdout)["mean"] >= _PLAYED[kind]
    assert _return(policy.load(folder), Matching(kind)) >= _PLAYED[kind]


def _return(play: policy.Policy, environment: Matching) -> float:
    total, start = 0.0, getattr(environment.action_space, "start", 0)
    observation, _ = environment.reset(seed=7)
    carry, reward = play.initial_carry(), 0.0
    for _ in range(STEPS):
        action: Any
        action, carry = play(observation, carry, reward=reward)
        observation, reward, *_ = environment.step(np.asarray(action) + start)
        total += reward
    return total
