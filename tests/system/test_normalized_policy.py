"""A policy that was learned in running units is played in those units.

Of a controller that is written down: in the units of its checkpoint it balances the pole, and in
any others it falls at once. `seedrl record` plays as `seedrl evaluate` does.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from learner.cli.main import main
from seedrl import checkpoints, policy
from seedrl.agents.normalization import RunningStatistics
from seedrl.agents.ppo import PpoConfig
from seedrl.config import Config, EnvironmentConfig, ServingConfig
from seedrl.config_io import to_json
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig
from seedrl.spec_json import encode_spec
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="ties env servers to this process"),
]

SPEC = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
CONFIG = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    agent=PpoConfig(
        network=ActorCriticConfig(torso="mlp", torso_sizes=(), core="none", head_sizes=()),
        normalize_observations=True,
        normalize_rewards=True,
    ),
    replay=QueueConfig(),
    serving=ServingConfig(training_slots=2, evaluation_slots=1),
)
MEAN, VARIANCE = np.float32([1, -2, 0.3, 1.5]), np.float32([0.25, 4, 0.01, 1])
# Pushes the cart to the right where this is above 0, of position, velocity, angle and its velocity.
CONTROLLER = np.float32([0.1, 0.4, 2.0, 1.0])


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("normalized") / "run"
    folder.mkdir()
    (folder / "config.json").write_text(to_json(CONFIG))
    params = jax.eval_shape(CONFIG.agent.build(SPEC).init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), params)
    right = params.agent["params"]["PolicyAndValueHead_0"]["policy"]
    right["kernel"][:, 1] = CONTROLLER * np.sqrt(VARIANCE)
    right["bias"][1] = CONTROLLER @ MEAN
    params = params._replace(observations=(RunningStatistics(np.float32(5), MEAN, VARIANCE),))
    meta = {"env_spec": encode_spec(SPEC), "config": to_json(CONFIG)}
    arrays = {"params": params, "updates": np.int32(3)}
    checkpoints.save(folder / "checkpoints", 3, arrays, meta, keep=2)
    return folder


def test_an_evaluation_has_the_units_of_the_checkpoint(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(workdir), "--episodes", "3", "--json"]) == 0
    assert min(json.loads(capsys.readouterr().out)["returns"]) > 200


def test_so_have_a_loaded_policy_and_an_exported_one(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = policy.load(workdir)
    assert main(["export", str(workdir)]) == 0
    exported: Any = jax.export.deserialize((workdir / "policy.jax").read_bytes())
    call = jax.jit(exported.call)
    # Of zeros, as docs/exported_policy.md has it: that is what begins an episode.
    (_, _, given), _ = exported.in_tree.unflatten(exported.in_avals)
    exported_carry: Any = [np.zeros(leaf.shape, leaf.dtype) for leaf in given]
    carry = loaded.initial_carry()
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    total, reward, is_over = 0.0, 0.0, False
    while not is_over:
        action, carry = loaded(observation, carry, reward=reward)
        other, exported_carry = call(observation, reward, exported_carry)
        assert action == int(other)
        observation, given_reward, terminated, truncated, _ = env.step(action)
        total, reward, is_over = total + float(given_reward), 1.0, terminated or truncated
    assert total > 200
