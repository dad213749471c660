"""Action masks at length: the environment counts the forbidden actions that it gets.

test_output.py has a short run with a mask.
"""

import json
from pathlib import Path

import pytest

from tests.masked_walk import counted
from tests.system.processes import TRAIN, Programs

_GRPC = "--launch.no-local-link"


# Of each: all of its acting, evaluation included, in 100,000 steps.
@pytest.mark.gate
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("config", "mask"),
    [
        *((f"cartpole_{agent}", "info") for agent in ("r2d2", "apex", "impala", "ppo")),
        # Where a mask comes from is the env server's affair.
        *(("cartpole_r2d2", "observation"), ("cartpole_ppo", "taxi")),
    ],
)
def test_no_action_of_a_hundred_thousand_is_forbidden(
    config: str, mask: str, programs: Programs, tmp_path: Path
) -> None:
    counts = tmp_path / "counts"
    arguments = {"counts": str(counts)} | ({} if mask == "taxi" else {"mask": mask})
    name = "taxi" if mask == "taxi" else "make"
    learner = programs(
        *(*TRAIN, config, "--workdir", tmp_path / "run", "--learning.total-steps", 100_000),
        *("--environment.id", f"tests.masked_walk:{name}"),
        *("--environment.arguments", json.dumps(arguments), _GRPC),
        *("--evaluation.target-return", None, "--logging.no-learning-curve"),
    )
    assert learner.end() == 0, learner.stderr
    steps, forbidden = counted(counts)
    assert steps > 95_000 and forbidden == 0
