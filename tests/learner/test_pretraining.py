"""Pretraining: from published weights, and with LoRA."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from learner.pretraining import pretrained
from seedrl.agents.grpo import GRPOConfig
from seedrl.errors import ConfigError
from seedrl.networks import weights
from seedrl.networks.decoder import DecoderConfig
from seedrl.specs import EnvSpec, TokensSpec
from tests.seedrl.networks.decoder_oracle import random_params

NETWORK = DecoderConfig(vocabulary=7, layers=1, width=8, heads=2, kv_heads=1, ffn=6, context=8)
TOKENS = TokensSpec(vocabulary=7, longest_turn=3, longest_completion=3, end=6)
IDS = np.random.default_rng(0).integers(0, 7, (5, 8), np.int32)


def after(steps: int, source: Path, **changes: Any) -> Any:
    config = GRPOConfig(network=dataclasses.replace(NETWORK, **changes))
    return pretrained(
        config,
        EnvSpec(TOKENS.turn, TOKENS),
        IDS,
        np.ones((5, 8), bool),
        steps=steps,
        batch=4,
        learning_rate=0.01,
        seed=0,
        weights=str(source),
    )


def test_it_starts_from_published_weights_and_with_lora_trains_that_only(tmp_path: Path) -> None:
    params = random_params(NETWORK)
    weights.write(tmp_path, NETWORK, params)
    start = after(0, tmp_path, lora_rank=2, context=12)
    np.testing.assert_array_equal(start["embedding"], params["embedding"])
    trained = after(2, tmp_path, lora_rank=2, context=12)
    for (path, old), new in zip(
        jax.tree.leaves_with_path(start), jax.tree.leaves(trained), strict=True
    ):
        # The value head has no part in a likelihood.
        assert np.array_equal(old, new) != path[-1].key.startswith("lora"), path
    with pytest.raises(ConfigError, match=r"network\.width"):
        after(0, tmp_path, width=16)
