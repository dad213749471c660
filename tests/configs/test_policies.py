"""The trained policies of the documentation can be played, and are small."""

import gymnasium
import numpy as np
import pytest

from seedrl import config_io, policy

FOLDER = config_io.bundled_folder().parent / "docs/policies"
POLICIES = {"cartpole": "cartpole_r2d2", "lunarlander": "lunarlander_ppo"}


@pytest.mark.parametrize(("name", "config"), POLICIES.items())
def test_each_policy_is_of_its_config_and_acts(name: str, config: str) -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(POLICIES)
    saved = config_io.load(FOLDER / name / "config.json")
    assert saved == config_io.load(config)  # else see the README there
    loaded = policy.load(FOLDER / name)
    leaves = [np.zeros(leaf.shape, leaf.dtype) for _, leaf in loaded.spec.leaves()]
    action, _ = loaded(loaded.spec.unflatten(leaves), loaded.initial_carry())
    assert isinstance(action, int)
    files = [path for path in (FOLDER / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000


@pytest.mark.gate  # each acts: below
def test_the_policy_of_cartpole_balances() -> None:
    loaded = policy.load(FOLDER / "cartpole")
    environment = gymnasium.make("CartPole-v1")
    for seed in range(2):
        observation, _ = environment.reset(seed=seed)
        carry, total, is_over = loaded.initial_carry(), 0.0, False
        while not is_over:
            action, carry = loaded(observation, carry, reward=float(total > 0))
            observation, reward, terminated, truncated, _ = environment.step(action)
            total, is_over = total + float(reward), terminated or truncated
        assert total >= 475
    environment.close()
