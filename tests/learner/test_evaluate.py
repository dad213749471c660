"""An evaluation repeats itself, and plays a policy in the units that it was trained in.

With real env servers, and parameters that nobody has trained.
"""

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import gymnasium
import jax
import numpy as np
import pytest

from learner.acting.evaluator import evaluation_exploration
from learner.checkpoints.run_records import read_final_score
from learner.cli.main import main
from learner.evaluate import _actor, _Player
from learner.runtime.channel import VersionedParams
from seedrl import checkpoints, policy
from seedrl.agents.normalization import RunningStatistics
from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.checkpoints import encode_spec
from seedrl.config import Actions, Config, EnvironmentConfig, ServingConfig
from seedrl.config_io import to_json
from seedrl.networks.config import ActorCriticConfig, QNetworkConfig
from seedrl.replay.queue import QueueConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="ties env servers to this process"),
]

SPEC = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
# Half of the actions are drawn: two evaluations that draw otherwise cannot be equal by chance.
CONFIG = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    seed=5,
    agent=R2D2Config(
        network=QNetworkConfig(
            torso="mlp",
            torso_sizes=(),
            core="none",
            head_sizes=(),
            frame_stack=1,
        ),
        evaluation_epsilon=0.5,
    ),
    serving=ServingConfig(training_slots=4, evaluation_slots=3),
)


def test_a_run_that_names_code_is_played_only_if_that_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = EnvironmentConfig(id="subprocess:run", wrappers=("other:wrap",))
    config = dataclasses.replace(CONFIG, environment=environment)
    (tmp_path / "config.json").write_text(to_json(config))
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "--allow subprocess:run other:wrap" in capsys.readouterr().err


def _saved_run(folder: Path, config: Config, params: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(to_json(config))
    meta = {"env_spec": encode_spec(SPEC), "config": to_json(config), "params_updates": 2}
    arrays = {"params": params, "updates": np.int32(3)}
    checkpoints.save(folder / "checkpoints", 3, arrays, meta, keep=2)
    return folder


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    params = jax.jit(CONFIG.agent.build(SPEC).init)(jax.random.key(1))
    return _saved_run(tmp_path_factory.mktemp("evaluated") / "run", CONFIG, params)


@pytest.fixture
def evaluate(workdir: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def play(*flags: str) -> dict[str, Any]:
        """The result of one that has lost no env server, as it may where a machine is very busy."""
        result: dict[str, Any] = {"slots_leased_again": 1}
        while result["slots_leased_again"]:
            assert main(["evaluate", str(workdir), "--episodes", "16", "--json", *flags]) == 0
            result = json.loads(capsys.readouterr().out)
            assert len(result["returns"]) == 16
        return result

    return play


def test_a_seed_decides_the_result_with_any_number_of_env_servers(evaluate: Any) -> None:
    # Evenly over three evaluation slots, and unevenly. Without a seed of its own an evaluation has
    # the run's.
    drawn = evaluate("--env-servers", "1", "--seed", str(CONFIG.seed))
    assert drawn == evaluate("--env-servers", "2")
    assert len(set(drawn["returns"])) > 1
    assert (drawn["updates"], drawn["step"]) == (2, 3)


def test_a_round_begins_again_where_a_stream_was_cut_though_its_slots_are_leased_again() -> None:
    cut: list[int] = []
    hub = SimpleNamespace(
        take_ended=lambda: cut, live_slots=lambda role: np.arange(3), num_disabled=0
    )
    player = _Player(
        cast(Any, hub),
        cast(Any, SimpleNamespace(num_slots=3)),
        VersionedParams({}, 3),
        lambda: None,
    )
    begun = player._current_round(None, 6)
    assert begun is not None and player._current_round(begun, 6) is begun
    cut.append(4)
    assert player._current_round(begun, 6) is None
    cut.clear()
    hub.live_slots = lambda role: np.arange(2)
    assert player._current_round(None, 6) is None
    hub.num_disabled = 1  # nobody will play the third one
    assert player._current_round(None, 6) is not None


def test_two_seeds_share_no_half_of_their_keys() -> None:
    agent = CONFIG.agent.build(SPEC)
    keys = [_actor(agent, SPEC, 1, exploration=0.5, seed=seed)._state.key for seed in (0, 1)]
    assert not np.any(np.asarray(keys[0]) == np.asarray(keys[1]))


# A controller that is written down: in the units of its checkpoint it balances the pole, and in any
# others it falls at once.
NORMALIZED = Config(
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


@pytest.fixture
def controller(tmp_path: Path) -> Path:
    params = jax.eval_shape(NORMALIZED.agent.build(SPEC).init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), params)
    right = params.agent["params"]["PolicyAndValueHead_0"]["policy"]
    right["kernel"][:, 1] = CONTROLLER * np.sqrt(VARIANCE)
    right["bias"][1] = CONTROLLER @ MEAN
    params = params._replace(observations=(RunningStatistics(np.float32(5), MEAN, VARIANCE),))
    return _saved_run(tmp_path / "run", NORMALIZED, params)


def test_a_policy_is_evaluated_loaded_and_exported_in_the_units_of_its_checkpoint(
    controller: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(controller), "--episodes", "1", "--json"]) == 0
    assert min(json.loads(capsys.readouterr().out)["returns"]) > 200
    loaded = policy.load(controller)
    assert main(["export", str(controller)]) == 0
    exported: Any = jax.export.deserialize((controller / "policy.jax").read_bytes())
    call = jax.jit(exported.call)
    # Of zeros, as docs/exported_policy.md has it: that is what begins an episode.
    (_, _, given), _ = exported.in_tree.unflatten(exported.in_avals)
    exported_carry: Any = [np.zeros(leaf.shape, leaf.dtype) for leaf in given]
    carry = loaded.initial_carry()
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    total, reward, is_over = 0.0, 0.0, False
    while not is_over and total <= 200:
        action, carry = loaded(observation, carry, reward=reward)
        other, exported_carry = call(observation, reward, exported_carry)
        assert action == int(other)
        observation, given_reward, terminated, truncated, _ = env.step(action)
        total, reward, is_over = total + float(given_reward), 1.0, terminated or truncated
    assert total > 200  # it would fall within ten


def test_environments_that_never_end_are_cut_short_and_named(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # CartPole falls long before 500 steps, so each episode that reaches 5 steps is cut there.
    flags = ["--episodes", "12", "--max-episode-steps", "5", "--deterministic", "--save"]
    assert main(["evaluate", str(workdir), "--json", *flags]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    # A run that was killed has counted updates after its newest checkpoint, which was scored.
    (workdir / "status.json").write_text('{"updates": 8}')
    assert read_final_score(workdir) == (result["mean"], result["episodes"], 3, 0.0)
    # A run that was trained on has another final score.
    later = workdir / "checkpoints" / f"{8:012d}"
    later.mkdir()
    assert read_final_score(workdir) is None
    later.rmdir()
    assert set(result["lengths"]) == {5} and result["returns"] == [5.0] * result["cut"]
    # The next episode of an environment begins once it has ended the one that was cut short, or
    # it plays no more: some end theirs within 5 more steps.
    assert 7 <= result["episodes"] <= 12
    assert "--max-episode-steps" in captured.err


def test_stochastic_actions_are_those_of_training_and_both_flags_are_refused(workdir: Path) -> None:
    agent = CONFIG.agent.build(SPEC)
    found = [evaluation_exploration(agent, actions, 4) for actions in get_args(Actions)]
    assert found == pytest.approx([0.5, 0.0, np.mean(agent.exploration(4))])
    policy_agent = NORMALIZED.agent.build(SPEC)
    found = [evaluation_exploration(policy_agent, actions, 4) for actions in get_args(Actions)]
    assert found == [0.0, 0.0, 1.0]
    assert main(["evaluate", str(workdir), "--deterministic", "--stochastic"]) == 2
