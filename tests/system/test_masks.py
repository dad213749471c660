"""Action masks over real gRPC: the environment counts the forbidden actions that it gets."""

import json
from pathlib import Path

import numpy as np
import pytest

from seedrl import policy
from tests.masked_walk import ACTIONS, MASKS, taxi
from tests.system.processes import SMALLEST, TRAIN, Programs, records

_GRPC = "--launch.no-local-link"


def _counted(counts: Path) -> tuple[int, int]:
    """Steps of ended episodes, and the forbidden actions among them."""
    rows = np.loadtxt(counts, int, ndmin=2)
    steps, forbidden = rows.sum(axis=0)
    return int(steps), int(forbidden)


@pytest.mark.slow
def test_taxi_gets_no_forbidden_action_in_training_resumed_evaluated_or_loaded(
    programs: Programs, tmp_path: Path
) -> None:
    run, counts = tmp_path / "run", tmp_path / "counts"
    given = ("--environment.arguments", json.dumps({"counts": str(counts)}))
    taxis = ("--environment.id", "tests.masked_walk:taxi", *given)
    for total in (400, 800):  # the second one resumes
        learner = programs(
            *(*TRAIN, "cartpole_r2d2", "--workdir", run, *taxis, *SMALLEST, _GRPC),
            *("--learning.total-steps", total, "--env-servers", 1),
        )
        assert learner.end() == 0, learner.stderr
        assert "action mask of 6" in learner.stdout + learner.stderr
    assert records(run)[-1]["env_steps"] >= 800
    steps, forbidden = _counted(counts)
    assert steps > 400 and forbidden == 0
    evaluated = programs(
        *("learner.cli.main", "evaluate", run, "--episodes", 4, "--stochastic"),
        *("--allow", "tests.masked_walk:taxi"),
    )
    assert evaluated.end() == 0, evaluated.stderr
    assert _counted(counts)[0] > steps and _counted(counts)[1] == 0

    played, env = policy.load(run, epsilon=1.0), taxi(str(tmp_path / "loaded"))
    (observation, info), carry = env.reset(seed=1), played.initial_carry()
    for _ in range(50):
        seen = {"observation": observation, "action_mask": info["action_mask"]}
        action, carry = played(seen, carry)
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    assert _counted(tmp_path / "loaded")[1] == 0


def test_the_walk_forbids_eight_of_ten_actions_everywhere() -> None:
    assert (MASKS.sum(axis=1) == 2).all() and MASKS.shape[1] == ACTIONS == 10
