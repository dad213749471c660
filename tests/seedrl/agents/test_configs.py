"""The configurations of the bundled agents: the papers' settings, and what is refused by name."""

from typing import Any

import pytest

from seedrl.agents.apex import ApexConfig
from seedrl.agents.check import build_agent
from seedrl.agents.grpo import GRPOConfig
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.sac import SacConfig
from seedrl.errors import ConfigError
from seedrl.networks.config import QNetworkConfig
from seedrl.networks.decoder import DecoderConfig
from seedrl.specs import (
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiDiscreteSpec,
    TokensSpec,
)

IMAGES = EnvSpec(ArraySpec((40, 40), "uint8"), DiscreteSpec(3))
VECTOR = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(3))
SEVERAL = EnvSpec(ArraySpec((4,), "float32"), MultiDiscreteSpec((2,), (3, 4)))
UNBOUNDED = EnvSpec(ArraySpec((3,), "float32"), BoxSpec((1,), (0.0,), (float("inf"),)))
_SIZES = TokensSpec(vocabulary=7, longest_turn=4, longest_completion=3, end=6)
TOKENS = EnvSpec(_SIZES.turn, _SIZES)
BOX = EnvSpec(ArraySpec((3,), "float32"), BoxSpec((2, 1), (-2.0, 0.0), (2.0, 4.0)))


def grpo(vocabulary: int = 7, context: int = 16) -> GRPOConfig:
    return GRPOConfig(network=DecoderConfig(vocabulary=vocabulary, context=context))


@pytest.mark.parametrize(
    ("kind", "fields", "named"),
    [
        (R2D2Config, {"burn_in": -1}, "agent.burn_in"),
        (R2D2Config, {"unroll": 0}, "agent.unroll"),
        (R2D2Config, {"gamma": 1.5}, "agent.gamma"),
        (R2D2Config, {"gamma": float("nan")}, "agent.gamma"),
        (R2D2Config, {"learning_rate": 0.0}, "agent.learning_rate"),
        (R2D2Config, {"learning_rate": "1e-3"}, "agent.learning_rate"),
        (ApexConfig, {"n_steps": 0}, "agent.n_steps"),
        (ApexConfig, {"earlier_steps": -1}, "agent.earlier_steps"),
        (ApexConfig, {"exploration_base": 1.5}, "agent.exploration_base"),
        (ImpalaConfig, {"rho_bar": 0.0}, "agent.rho_bar"),
        (ImpalaConfig, {"adam_b1": 1.0}, "agent.adam_b1"),
        (ImpalaConfig, {"vtrace_lambda": 1.5}, "agent.vtrace_lambda"),
        (PpoConfig, {"gae_lambda": 1.5}, "agent.gae_lambda"),
        (PpoConfig, {"clip": 0.0}, "agent.clip"),
        (PpoConfig, {"epochs": 0}, "agent.epochs"),
        (PpoConfig, {"unroll": 6, "chunk_steps": 4}, "agent.chunk_steps"),
        (SacConfig, {"tau": 0.0}, "agent.tau"),
        (SacConfig, {"actor_learning_rate": 0.0}, "agent.actor_learning_rate"),
        (SacConfig, {"initial_temperature": 0.0}, "agent.initial_temperature"),
        (SacConfig, {"target_entropy": "-dim"}, "agent.target_entropy"),
        (GRPOConfig, {"ratio_cap": 1.2}, "agent.ratio_cap"),
        (GRPOConfig, {"group": 1}, "agent.group"),
        (GRPOConfig, {"advantage": "best"}, "agent.advantage"),
        (GRPOConfig, {"temperature": 0.0}, "agent.temperature"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(
    kind: Any, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError) as caught:
        kind(**fields)
    assert str(caught.value).startswith(f"{named}: ")


@pytest.mark.parametrize(
    ("config", "spec", "named"),
    [
        (R2D2Config(), BOX, "R2D2"),
        (ApexConfig(), BOX, "Ape-X"),
        (R2D2Config(), SEVERAL, "MultiDiscrete([3, 4])"),
        (ApexConfig(), SEVERAL, "MultiDiscrete([3, 4])"),
        (SacConfig(), IMAGES, "SAC"),
        (SacConfig(), SEVERAL, "MultiDiscrete([3, 4])"),
        (SacConfig(), UNBOUNDED, "Box[1] without bounds"),
        (ApexConfig(network=QNetworkConfig()), IMAGES, "agent.network"),  # a recurrent core
        (ApexConfig(earlier_steps=2), IMAGES, "agent.earlier_steps"),  # of 4 stacked frames
        *((kind(), TOKENS, "agent: ") for kind in (PpoConfig, ImpalaConfig, R2D2Config, SacConfig)),
        (ApexConfig(), TOKENS, "agent: "),
        (grpo(), VECTOR, "agent: "),
        (grpo(vocabulary=8), TOKENS, "agent.network.vocabulary: "),
        (grpo(context=6), TOKENS, "agent.network.context: "),
    ],
)
def test_an_environment_that_does_not_fit_is_refused(
    config: Any, spec: EnvSpec, named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build_agent(config, spec)
    assert named in str(caught.value)
