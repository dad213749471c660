"""Action masks at length: the environment counts the forbidden actions that it gets.

test_output.py has a short run with a mask.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs_server.build import Recipe, build
from envs_server.groups import EnvGroup
from seedrl.agents.agent import AgentState
from seedrl.agents.check import build_agent
from seedrl.agents.ppo import PpoConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.types import Sequence, StepType, StoredStep
from tests.masked_walk import STEPS, counted, make
from tests.system.processes import TRAIN, Programs

_GRPC = "--launch.no-local-link"


# Of each: all of its acting, evaluation included, in 100,000 steps.
@pytest.mark.gate
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "config", ["cartpole_r2d2", "cartpole_apex", "cartpole_impala", "cartpole_ppo"]
)
@pytest.mark.parametrize("mask", ["info", "observation", "taxi"])
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


_UPDATES, _SLOTS, _SEEDS = 40, 32, 5
_PPO = PpoConfig(
    network=ActorCriticConfig(torso="mlp", torso_sizes=(), core="none", head_sizes=(32,)),
    unroll=24,
    epochs=4,
    minibatches=1,
    gamma=0.9,
    learning_rate=3e-3,
)


def _curves(mask: str) -> np.ndarray:
    """`[seeds, updates]`: mean return of an episode while PPO learns, one batch after the other."""

    def walks(seed: int) -> EnvGroup:
        recipe = Recipe("walk", {"mask": mask}, (), make)
        first = _SLOTS * seed
        return EnvGroup(0, build(recipe, "sync", _SLOTS), range(first, first + _SLOTS))

    group = walks(0)
    group.reset()
    agent = build_agent(_PPO, group.spec)
    act = jax.jit(agent.act)

    @jax.jit
    def learn(state: AgentState, sequence: Sequence, key: Any) -> AgentState:
        batch = agent.preprocess_batch(state, sequence, jnp.ones(_SLOTS))
        for _ in range(agent.epochs):
            state, _ = agent.update(state, *batch, key, mean=lambda tree: tree)
        return state

    curves = np.zeros((_SEEDS, _UPDATES))
    for seed in range(_SEEDS):
        group, key = walks(seed), jax.random.key(seed)
        timestep, carry = group.reset(), agent.initial_carry(_SLOTS)
        state = agent.init_state(agent.init(key))
        for update in range(_UPDATES):
            rows, start = [], carry
            for _ in range(agent.window.length):
                key, own = jax.random.split(key)
                # The environments write the next observation in the place of this one.
                timestep = jax.tree.map(np.array, timestep)
                output = act(state.params, carry, timestep, np.ones(_SLOTS, np.float32), own)
                version = np.zeros(_SLOTS, np.int32)
                rows.append(StoredStep(timestep, output.action, version, output.extras))
                carry = output.carry
                timestep = group.advance(np.asarray(output.action, np.int64))
            steps = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
            state = learn(state, Sequence(steps, start), own)
            is_step = steps.timestep.step_type != StepType.FIRST
            curves[seed, update] = STEPS * steps.timestep.reward.sum() / is_step.sum()
    return curves


@pytest.mark.gate
@pytest.mark.timeout(1800)
def test_a_mask_makes_learning_faster(record_property: Any) -> None:
    """95 % intervals of the environment steps to a return of 18 of 24 are apart."""
    reached: dict[str, np.ndarray] = {}
    half: dict[str, float] = {}
    for mask in ("info", "none"):
        curves = _curves(mask)
        record_property(mask, json.dumps(curves.round(2).tolist()))
        assert (curves.max(axis=1) >= 18).all()
        reached[mask] = _SLOTS * (_PPO.unroll + 1) * (1 + np.argmax(curves >= 18, axis=1))
        # Student's t of 4 degrees of freedom.
        half[mask] = float(2.776 * reached[mask].std(ddof=1) / np.sqrt(_SEEDS))
        print(mask, reached[mask].tolist(), reached[mask].mean(), half[mask])
    masked, plain = reached["info"].mean(), reached["none"].mean()
    assert masked + half["info"] < plain - half["none"]
