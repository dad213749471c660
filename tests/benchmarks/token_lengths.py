"""Completions of known lengths: an environment that takes any, and a policy that ends them.

The policy ends a completion with the same probability after each token, whatever it has read: so
lengths are geometric, up to the limit, or all equal to the limit if it never ends one. Its network
computes as any other does; only its parameters are chosen.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.agent import Agent
from seedrl.agents.grpo import GRPOConfig
from seedrl.networks import decoder
from seedrl.specs import EnvSpec, TokensSpec
from seedrl.token_env import CharactersVocabulary, TokenEnv
from seedrl.types import Array, Tree

VOCABULARY = 64
_NEVER = -50.0  # logit of an id that is not sampled in 10^18 tokens


class Lengths(TokenEnv):
    """Asks one id, takes a completion of up to `longest`, rewards nothing."""

    longest_turn = 1

    def __init__(self, *, longest: int) -> None:
        self.tokens = CharactersVocabulary("".join(map(chr, range(33, 32 + VOCABULARY))))
        self.longest_completion = longest

    def reset(self, seed: int) -> np.ndarray:
        return np.zeros(1, np.int32)

    def step(self, ids: np.ndarray) -> tuple[None, float]:
        return None, 0.0


@dataclass(frozen=True, kw_only=True)
class LengthsConfig(GRPOConfig):
    """GRPO with chosen parameters.

    Attributes:
      mean_length: of completions without a limit, at least 1; 0 never ends one.
    """

    mean_length: float = 0.0

    def build(self, spec: EnvSpec) -> Agent:
        assert isinstance(spec.action, TokensSpec)
        end = spec.action.end

        def init(key: Array) -> Tree:
            return self._chosen(decoder.init(self.network, key), end)

        return super().build(spec)._replace(init=init)

    def _chosen(self, params: Tree, end: int) -> Tree:
        # Blocks add 0 to a residual stream of ones, which the head turns into constant logits.
        odds = (VOCABULARY - 1) / (self.mean_length - 1) if self.mean_length > 1 else 0.0
        logit = math.log(odds) if odds else _NEVER
        layers = dict(params["layers"])
        for name in ("output", "down"):
            layers[name] = jax.tree.map(jnp.zeros_like, layers[name])
        return {
            **params,
            "layers": layers,
            "embedding": jnp.ones_like(params["embedding"]),
            "head": jnp.zeros_like(params["head"]).at[end].set(logit / self.network.width),
        }
