"""What spaces declare is learned from: probes that are solved within 25,000 steps."""

import json
from pathlib import Path

import pytest

from tests.system.processes import TRAIN, Programs

pytestmark = [pytest.mark.gate, pytest.mark.timeout(600)]
_SCALE = ("--agent.reward-scale", 1)  # not CartPole's


@pytest.mark.parametrize(
    ("config", "kind", "target", "flags"),
    [
        ("cartpole_apex", "bytes", 9.5, ()),
        ("cartpole_apex", "discrete", 9.5, ()),
        ("cartpole_apex", "bounded", 9.5, ()),
        ("cartpole_ppo", "discrete", 9.5, _SCALE),
        ("cartpole_ppo", "later", 9.5, _SCALE),
        ("cartpole_ppo", "many", 9.5, _SCALE),
        ("cartpole_ppo", "two", 9.5, _SCALE),
        ("cartpole_ppo", "picture", 9.5, (*_SCALE, "--agent.network.torso", "auto")),
        # All hidden biases begin at 0, so that of zeros every layer is at the edge of its ReLU.
        ("cartpole_r2d2", "nothing", 0.95, ()),
    ],
)
def test_a_probe_is_solved(
    config: str,
    kind: str,
    target: float,
    flags: tuple[object, ...],
    programs: Programs,
    tmp_path: Path,
) -> None:
    run = programs(
        *(*TRAIN, config, "--workdir", tmp_path / "run", "--environment.id"),
        *("tests.system.cells:make", "--environment.arguments", json.dumps({"kind": kind})),
        *("--learning.total-steps", 25_000, "--evaluation.target-return", target),
        *("--serving.evaluation-slots", 20, "--logging.no-learning-curve"),
        *("--evaluation.interval-seconds", 0.1, *flags),
    )
    assert run.end() == 0, run.stderr
    # At its start the run says what it makes of the observation.
    assert "observation: " in run.stderr + run.stdout
