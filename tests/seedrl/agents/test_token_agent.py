"""A token policy as an agent: its plain loop answers as the generators do; misfits are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.acting.token_generator import TokenGenerator
from learner.build import plan_geometry
from seedrl import config_io
from seedrl.agents.check import build_agent
from seedrl.agents.grpo import GRPOConfig
from seedrl.errors import ConfigError
from seedrl.fields import with_fields
from seedrl.networks.decoder import DecoderConfig
from seedrl.replay.queue import QueueConfig
from seedrl.specs import FIRST_HELD_OUT_SEED, EnvSpec, TokensSpec
from seedrl.turns import turn_ids, turn_row
from seedrl.types import StepType, TimeStep

_SIZES = TokensSpec(vocabulary=7, longest_turn=4, longest_completion=3, end=6)
_SPEC = EnvSpec(_SIZES.turn, _SIZES)
_CONFIG = GRPOConfig(
    network=DecoderConfig(vocabulary=7, layers=1, width=8, heads=2, kv_heads=1, ffn=8, context=16)
)


@pytest.mark.gate  # the generator: tests/learner/acting/test_token_generator.py
def test_the_loop_of_the_agent_answers_as_a_lane_does() -> None:
    # Greedily, over turns and a new episode; without room for an answer it asks.
    agent, random = build_agent(_CONFIG, _SPEC), np.random.default_rng(0)
    params = jax.jit(agent.init)(jax.random.PRNGKey(0))
    params = {**params, "embedding": 30 * params["embedding"]}
    generator = TokenGenerator(
        _CONFIG.network, _SIZES, np.zeros(3, np.float32), jax.random.PRNGKey(1), jax.devices()[0]
    )
    carry, act = agent.initial_carry(3), jax.jit(agent.act)
    num_empty = 0
    for turn in range(8):
        kind = StepType.FIRST if turn % 5 == 0 else StepType.MID
        asked = [random.integers(6, size=random.integers(1, 5)) for _ in range(3)]
        # The second episode begins with a question that was asked for, which is MID.
        seed = 7 if turn == 5 else None
        rows = jnp.asarray(np.stack([turn_row(_SIZES, ids, seed) for ids in asked]))
        kinds, ones = jnp.full(3, StepType.MID if turn == 5 else kind, jnp.uint8), jnp.ones(3)
        step = TimeStep(kinds, 0 * ones, ones, rows)
        output = act(params, carry, step, jnp.zeros(3), jax.random.PRNGKey(turn))
        carry, expected = output.carry, {}
        for row, ids in enumerate(asked):
            if kind == StepType.FIRST:
                generator.begin(row, row)
            if not generator.ask(row, ids):
                expected[row], num_empty = [], num_empty + 1
        while generator.is_live.any():
            generator.start(params, 0)
            expected |= {row: generator.completion(row).tolist() for row in generator.finish()}
        for row, action in enumerate(np.asarray(output.action)):
            assert turn_ids(action).tolist() == expected[row]
            # Without an answer it asks for a question that training never asks.
            assert action[0] == 0 if expected[row] else action[0] > FIRST_HELD_OUT_SEED
    assert num_empty


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"learning.batch_sequences": 250}, "learning.batch_sequences"),
        ({"learning.schedule": "synchronous"}, "learning.schedule"),
        ({"learning.publish_every_updates": 4}, "learning.publish_every_updates"),
        # Both sides would wait for each other.
        (
            {"learning.publish_every_updates": 2, "replay.max_lag_updates": 0},
            "learning.publish_every_updates",
        ),
        (
            {"learning.publish_every_updates": 2, "learning.schedule": "deterministic"},
            "learning.publish_every_updates",
        ),
        ({"learning.lag_updates": 1}, "learning.lag_updates"),
        ({"serving.evaluation_slots": 2**30}, "serving.training_slots"),
        ({"replay": QueueConfig()}, "replay"),
    ],
)
def test_what_a_token_policy_does_not_do_is_refused_before_the_run(
    changes: dict[str, object], field: str
) -> None:
    config = with_fields(config_io.load("reverse_grpo"), {"learning.num_devices": 1, **changes})
    with pytest.raises(ConfigError, match=f"^{field}: "):
        plan_geometry(config)
